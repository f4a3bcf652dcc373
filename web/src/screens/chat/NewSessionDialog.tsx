/** The form for a new session: agent, mode and title. */
import { type FormEvent, useState } from "react";
import { Link, useLocation } from "wouter";
import { Badge } from "../../components/Badge";
import { Button } from "../../components/Button";
import { Dialog } from "../../components/Dialog";
import { Empty } from "../../components/Empty";
import { ErrorNote } from "../../components/ErrorNote";
import { Field } from "../../components/Field";
import { Loading } from "../../components/Loading";
import { Select } from "../../components/Select";
import { type Agent, useAgents, useCreateSession, useModel } from "./sessions";

interface Props {
  workspaceId: string;
  isOpen: boolean;
  onClose: () => void;
}

export default function NewSessionDialog({ workspaceId, isOpen, onClose }: Props) {
  return (
    <Dialog title="New session" isOpen={isOpen} onClose={onClose}>
      <NewSession workspaceId={workspaceId} onClose={onClose} />
    </Dialog>
  );
}

function NewSession({ workspaceId, onClose }: Omit<Props, "isOpen">) {
  const agents = useAgents(workspaceId);
  const create = useCreateSession(workspaceId);
  const [chosen, setChosen] = useState<string | null>(null);
  const [title, setTitle] = useState("");
  const [mode, setMode] = useState<"build" | "plan">("build");
  const [, go] = useLocation();
  if (agents.isPending) return <Loading what="agents" />;
  if (agents.error) return <ErrorNote error={agents.error} />;
  const usable = agents.data.items.filter((agent) => agent.rules.model);
  if (usable.length === 0) {
    return (
      <Empty title="No agent with a model yet">
        An owner can add one in Settings, Agents.{" "}
        <Link href={`/w/${workspaceId}/start`} onClick={onClose} className="text-accent underline">
          First steps
        </Link>
      </Empty>
    );
  }
  const agentId = chosen ?? usable[0]?.id ?? null;

  function submit(event: FormEvent) {
    event.preventDefault();
    create.mutate(
      { agent_id: agentId, title: title.trim() || null, mode, directory: "" },
      {
        onSuccess: (session) => {
          onClose();
          go(`/w/${workspaceId}/chat/${session.id}`);
        },
      },
    );
  }

  return (
    <form onSubmit={submit} className="space-y-4">
      <fieldset>
        <legend className="mb-1 text-sm font-medium">Agent</legend>
        <div className="divide-y divide-line overflow-hidden rounded-md border border-line">
          {usable.map((agent) => (
            <AgentChoice
              key={agent.id}
              agent={agent}
              isChosen={agent.id === agentId}
              onChoose={() => setChosen(agent.id)}
            />
          ))}
        </div>
      </fieldset>
      <Select
        label="Mode"
        value={mode}
        onChange={(value) => setMode(value === "plan" ? "plan" : "build")}
        options={{ build: "Build: make changes", plan: "Plan: read files and write a plan first" }}
      />
      <Field
        label="Title"
        value={title}
        onChange={setTitle}
        maxLength={200}
        hint="Optional. You can change it later."
      />
      <ErrorNote error={create.error} />
      <div className="flex justify-end gap-2">
        <Button onClick={onClose}>Cancel</Button>
        <Button type="submit" variant="primary" busy={create.isPending}>
          Start
        </Button>
      </div>
    </form>
  );
}

function AgentChoice({ agent, isChosen, onChoose }: { agent: Agent; isChosen: boolean; onChoose: () => void }) {
  const model = useModel(agent);
  return (
    <label className="flex cursor-pointer items-center gap-3 px-3 py-2 has-checked:bg-accent-soft">
      <input type="radio" name="agent" checked={isChosen} onChange={onChoose} />
      <span className="min-w-0 grow">
        <span className="block truncate font-medium">{agent.name}</span>
        <span className="block truncate text-xs text-muted">
          {model?.name ?? agent.rules.model} · {agent.rules.provider} · {agent.rules.trust}
        </span>
      </span>
      {model && (
        <Badge tone={model.supports_tools ? "good" : "warn"}>{model.supports_tools ? "uses tools" : "no tools"}</Badge>
      )}
    </label>
  );
}
