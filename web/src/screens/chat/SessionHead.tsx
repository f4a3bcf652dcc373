/** The header of a session: title, agent, context usage, trust, phase and mode. */
import { ArrowLeft, Check, Link as LinkIcon, Pencil } from "lucide-react";
import { type FormEvent, useState } from "react";
import { Link } from "wouter";
import { Badge } from "../../components/Badge";
import { Button, IconButton } from "../../components/Button";
import { copyText } from "../../components/clipboard";
import { Dialog } from "../../components/Dialog";
import { ErrorNote } from "../../components/ErrorNote";
import { Field } from "../../components/Field";
import { Select } from "../../components/Select";
import { type Conversation, currentRun } from "../../events/conversation";
import { readOnlyLink, useMayAct } from "./access";
import { Gauge } from "./Gauge";
import { titleOf } from "./SessionList";
import { type Agent, type Session, useUpdateSession } from "./sessions";

interface Props {
  workspaceId: string;
  session: Session;
  agent: Agent | undefined;
  conversation: Conversation;
}

export function SessionHead({ workspaceId, session, agent, conversation }: Props) {
  const [isRenaming, setIsRenaming] = useState(false);
  const change = useUpdateSession(workspaceId, session.id);
  const run = currentRun(conversation);
  const mayAct = useMayAct(workspaceId);
  return (
    <header className="shrink-0 border-b border-line bg-surface px-3 py-2">
      <div className="flex flex-wrap items-center gap-x-2 gap-y-2">
        <Link
          href={`/w/${workspaceId}/chat`}
          aria-label="All sessions"
          className="rounded-sm p-1 hover:bg-accent-soft lg:hidden"
        >
          <ArrowLeft aria-hidden className="size-4" />
        </Link>
        <div className="min-w-0 grow basis-40">
          <h1 className="flex items-center gap-1">
            <span className="truncate font-semibold">{titleOf(session)}</span>
            {mayAct && (
              <IconButton label="Rename session" className="shrink-0" onClick={() => setIsRenaming(true)}>
                <Pencil aria-hidden className="size-3.5" />
              </IconButton>
            )}
            <CopyLink workspaceId={workspaceId} sessionId={session.id} />
          </h1>
          <p className="truncate text-xs text-muted">
            {session.parent_session_id && (
              <>
                <Link href={`/w/${workspaceId}/chat/${session.parent_session_id}`} className="text-accent underline">
                  Child run
                </Link>
                {" · "}
              </>
            )}
            {session.forked_from_session_id && (
              <>
                <Link
                  href={`/w/${workspaceId}/chat/${session.forked_from_session_id}`}
                  className="text-accent underline"
                >
                  Forked session
                </Link>
                {" · "}
              </>
            )}
            {agent ? `${agent.name} · ${agent.rules.model ?? "no model"}` : "no agent"}
          </p>
        </div>
        <Gauge conversation={conversation} run={run} />
        {mayAct ? (
          <>
            <Select
              label="Trust"
              isLabelHidden
              small
              value={session.trust ?? ""}
              onChange={(trust) =>
                change.mutate({ trust: trust === "" ? null : (trust as NonNullable<Session["trust"]>) })
              }
              options={{
                "": `Trust: agent default (${agent?.rules.trust ?? "…"})`,
                supervised: "Trust: supervised",
                guided: "Trust: guided",
                review: "Trust: review",
                autonomous: "Trust: autonomous",
              }}
            />
            {agent && agent.rules.phases.length > 0 && (
              <Select
                label="Phase"
                isLabelHidden
                small
                value={session.phase ?? agent.rules.phases[0]?.name ?? ""}
                onChange={(phase) => change.mutate({ phase })}
                options={phaseOptions(agent, session)}
              />
            )}
            <Select
              label="Mode"
              isLabelHidden
              small
              value={session.mode}
              onChange={(value) => change.mutate({ mode: value === "plan" ? "plan" : "build" })}
              options={{ build: "Build", plan: "Plan" }}
            />
          </>
        ) : (
          <span className="flex gap-2">
            <Badge title="Trust">{session.trust ?? agent?.rules.trust ?? "…"}</Badge>
            <Badge title="Mode">{session.mode}</Badge>
          </span>
        )}
      </div>
      <ErrorNote error={change.error} />
      <Dialog title="Rename session" isOpen={isRenaming} onClose={() => setIsRenaming(false)}>
        <Rename
          title={session.title ?? ""}
          busy={change.isPending}
          onRename={(title) => change.mutate({ title }, { onSuccess: () => setIsRenaming(false) })}
        />
      </Dialog>
    </header>
  );
}

/** Copies an address under which other members read the session, without controls. */
function CopyLink({ workspaceId, sessionId }: { workspaceId: string; sessionId: string }) {
  const [isCopied, setIsCopied] = useState(false);
  return (
    <IconButton
      label={isCopied ? "Link copied" : "Copy read-only link for members"}
      className="shrink-0"
      onClick={() => copyText(readOnlyLink(workspaceId, sessionId)).then(() => setIsCopied(true))}
      onBlur={() => setIsCopied(false)}
    >
      {isCopied ? <Check aria-hidden className="size-3.5" /> : <LinkIcon aria-hidden className="size-3.5" />}
    </IconButton>
  );
}

/** Returns the agent's phases, and the session's phase even if the agent no longer has it. */
function phaseOptions(agent: Agent, session: Session): Record<string, string> {
  const names = [...agent.rules.phases.map(({ name }) => name), ...(session.phase ? [session.phase] : [])];
  return Object.fromEntries(names.map((name) => [name, `Phase: ${name}`]));
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
      <Button type="submit" variant="primary" busy={busy}>
        Rename
      </Button>
    </form>
  );
}
