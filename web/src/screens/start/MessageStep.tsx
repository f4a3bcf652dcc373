import { type FormEvent, useState } from "react";
import { useLocation } from "wouter";
import type { Schema } from "../../api/client";
import { Button } from "../../components/Button";
import { ErrorNote } from "../../components/ErrorNote";
import { Select } from "../../components/Select";
import { TextArea } from "../../components/TextArea";
import { SAMPLE_FOLDER, TASKS } from "./sample";
import { useSendFirstMessage } from "./start";

/** The third step: a task of one's own, or an example on a sample project. */
export function MessageStep({ workspaceId, agents }: { workspaceId: string; agents: Schema["AgentOut"][] }) {
  const [agentId, setAgentId] = useState<string | null>(null);
  const [text, setText] = useState(TASKS[0]?.text ?? "");
  const [, go] = useLocation();
  const send = useSendFirstMessage(workspaceId);
  const agent = agentId ?? agents[0]?.id ?? "";
  const isSample = text.includes(SAMPLE_FOLDER);

  function submit(event: FormEvent) {
    event.preventDefault();
    send.mutate(
      { agentId: agent, text, withSample: isSample },
      { onSuccess: (sessionId) => go(`/w/${workspaceId}/chat/${sessionId}`) },
    );
  }

  return (
    <form onSubmit={submit} className="space-y-4">
      {agents.length > 1 && (
        <Select
          label="Agent"
          value={agent}
          onChange={setAgentId}
          options={Object.fromEntries(agents.map(({ id, name }) => [id, name]))}
        />
      )}
      <div role="group" aria-label="Example tasks" className="flex flex-wrap gap-2">
        {TASKS.map((task) => (
          <button
            key={task.title}
            type="button"
            aria-pressed={text === task.text}
            onClick={() => setText(task.text)}
            className="min-h-9 rounded-full border border-line px-3 text-sm hover:bg-accent-soft aria-pressed:border-accent aria-pressed:bg-accent-soft aria-pressed:text-accent"
          >
            {task.title}
          </button>
        ))}
      </div>
      <TextArea
        label="Task"
        rows={4}
        required
        value={text}
        onChange={setText}
        hint={isSample ? `A small sample project is added in ${SAMPLE_FOLDER}. You can delete it later.` : undefined}
      />
      <ErrorNote error={send.error} />
      <Button type="submit" variant="primary" busy={send.isPending}>
        Start
      </Button>
    </form>
  );
}
