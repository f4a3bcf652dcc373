/** A session's name and agent, how much of the model's window is used, and its two switches. */
import { ArrowLeft, Pencil } from "lucide-react";
import { type FormEvent, useState } from "react";
import { Link } from "wouter";
import { type Conversation, currentRun } from "../../events/conversation";
import { Button, IconButton } from "../../parts/Button";
import { Dialog } from "../../parts/Dialog";
import { ErrorNote } from "../../parts/ErrorNote";
import { Field } from "../../parts/Field";
import { Select } from "../../parts/Select";
import { Gauge } from "./Gauge";
import { titleOf } from "./SessionList";
import { type Agent, type Session, useChangeSession } from "./sessions";

interface Props {
  workspaceId: string;
  session: Session;
  agent: Agent | undefined;
  conversation: Conversation;
}

export function SessionHead({ workspaceId, session, agent, conversation }: Props) {
  const [isRenaming, setIsRenaming] = useState(false);
  const change = useChangeSession(workspaceId, session.id);
  const run = currentRun(conversation);
  return (
    <header className="shrink-0 border-b border-line bg-surface px-3 py-1.5">
      <div className="flex flex-wrap items-center gap-x-3 gap-y-1.5">
        <Link
          href={`/w/${workspaceId}/chat`}
          aria-label="All sessions"
          className="rounded p-1 hover:bg-accent-soft lg:hidden"
        >
          <ArrowLeft aria-hidden className="size-4" />
        </Link>
        <div className="min-w-0 grow basis-40">
          <h1 className="flex items-center gap-1">
            <span className="truncate font-semibold">{titleOf(session)}</span>
            <IconButton label="Rename the session" className="shrink-0" onClick={() => setIsRenaming(true)}>
              <Pencil aria-hidden className="size-3.5" />
            </IconButton>
          </h1>
          <p className="truncate text-xs text-muted">
            {agent ? `${agent.name} · ${agent.rules.model ?? "no model"}` : "no agent"}
          </p>
        </div>
        <Gauge usage={conversation.usage} run={run} />
        <Select
          label="Trust"
          isLabelHidden
          small
          value={session.trust ?? ""}
          onChange={(trust) => change.mutate({ trust: trust === "" ? null : (trust as NonNullable<Session["trust"]>) })}
          options={{
            "": `Trust: as its agent (${agent?.rules.trust ?? "…"})`,
            supervised: "Trust: supervised",
            guided: "Trust: guided",
            autonomous: "Trust: autonomous",
          }}
        />
        <Select
          label="Mode"
          isLabelHidden
          small
          value={session.mode}
          onChange={(value) => change.mutate({ mode: value === "plan" ? "plan" : "build" })}
          options={{ build: "Build", plan: "Plan" }}
        />
      </div>
      <ErrorNote error={change.error} />
      <Dialog title="Rename the session" isOpen={isRenaming} onClose={() => setIsRenaming(false)}>
        <Rename
          title={session.title ?? ""}
          busy={change.isPending}
          onRename={(title) => change.mutate({ title }, { onSuccess: () => setIsRenaming(false) })}
        />
      </Dialog>
    </header>
  );
}

function Rename({ title, busy, onRename }: { title: string; busy: boolean; onRename: (title: string | null) => void }) {
  const [name, setName] = useState(title);
  function submit(event: FormEvent) {
    event.preventDefault();
    onRename(name.trim() || null);
  }
  return (
    <form onSubmit={submit} className="space-y-3">
      <Field label="Title" value={name} onChange={setName} maxLength={200} />
      <Button type="submit" look="primary" busy={busy}>
        Rename
      </Button>
    </form>
  );
}
