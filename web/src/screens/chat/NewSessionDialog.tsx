/** Beginning a session: with which agent, in which mode. */
import { type FormEvent, useState } from "react";
import { useLocation } from "wouter";
import { Badge } from "../../parts/Badge";
import { Button } from "../../parts/Button";
import { Dialog } from "../../parts/Dialog";
import { Empty } from "../../parts/Empty";
import { ErrorNote } from "../../parts/ErrorNote";
import { Field } from "../../parts/Field";
import { Loading } from "../../parts/Loading";
import { Select } from "../../parts/Select";
import { type Agent, useAgents, useBeginSession, useModel } from "./sessions";

interface Props {
  workspaceId: string;
  isOpen: boolean;
  onClose: () => void;
}

export function NewSessionDialog({ workspaceId, isOpen, onClose }: Props) {
  return (
    <Dialog title="New session" isOpen={isOpen} onClose={onClose}>
      <NewSession workspaceId={workspaceId} onClose={onClose} />
    </Dialog>
  );
}

function NewSession({ workspaceId, onClose }: Omit<Props, "isOpen">) {
  const agents = useAgents(workspaceId);
  const begin = useBeginSession(workspaceId);
  const [chosen, setChosen] = useState<string | null>(null);
  const [title, setTitle] = useState("");
  const [mode, setMode] = useState<"build" | "plan">("build");
  const [, go] = useLocation();
  if (agents.isPending) return <Loading what="agents" />;
  if (agents.error) return <ErrorNote error={agents.error} />;
  const able = agents.data.items.filter((agent) => agent.rules.model);
  if (able.length === 0) {
    return <Empty title="No agent here names a model">An owner adds one under Administration, Agents.</Empty>;
  }
  const agentId = chosen ?? able[0]?.id ?? null;

  function submit(event: FormEvent) {
    event.preventDefault();
    begin.mutate(
      { agent_id: agentId, title: title.trim() || null, mode },
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
          {able.map((agent) => (
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
        options={{ build: "Build: do what the agent may", plan: "Plan: look, and write a plan first" }}
      />
      <Field label="Title" value={title} onChange={setTitle} maxLength={200} hint="Can be given later too." />
      <ErrorNote error={begin.error} />
      <div className="flex justify-end gap-2">
        <Button onClick={onClose}>Cancel</Button>
        <Button type="submit" look="primary" busy={begin.isPending}>
          Begin
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
