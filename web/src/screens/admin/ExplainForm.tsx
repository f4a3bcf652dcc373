import { useMutation, useQuery } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { api, type Schema, taken } from "../../api/client";
import { Badge, type Tone } from "../../parts/Badge";
import { Button } from "../../parts/Button";
import { Card } from "../../parts/Card";
import { ErrorNote } from "../../parts/ErrorNote";
import { Select } from "../../parts/Select";
import { TextArea } from "../../parts/TextArea";

const VERDICTS: Record<Schema["Verdict"], { words: string; tone: Tone }> = {
  allow: { words: "It would be done", tone: "good" },
  ask: { words: "A person would be asked", tone: "warn" },
  refuse: { words: "It would be refused", tone: "bad" },
};

interface Props {
  workspaceId: string;
  agents: Schema["AgentAnswer"][];
}

/** What the gate would do with a call, and why, without making it. */
export function ExplainForm({ workspaceId, agents }: Props) {
  const tools = useQuery({
    queryKey: [workspaceId, "tools"],
    queryFn: () =>
      taken(api.GET("/api/v1/workspaces/{workspace_id}/tools", { params: { path: { workspace_id: workspaceId } } })),
  });
  const [agentId, setAgentId] = useState(agents[0]?.id ?? "");
  const [tool, setTool] = useState("write");
  const [args, setArgs] = useState('{"path": "/docs/start.md", "content": "…"}');
  const asking = useMutation({ mutationFn: () => explain(workspaceId, agentId, tool, args) });

  function submit(event: FormEvent) {
    event.preventDefault();
    asking.mutate();
  }

  return (
    <Card title="What would happen if …">
      <form onSubmit={submit} className="space-y-3">
        <div className="flex flex-wrap gap-3">
          <Select
            label="Agent"
            value={agentId}
            onChange={setAgentId}
            options={Object.fromEntries(agents.map((agent) => [agent.id, agent.name]))}
          />
          <Select
            label="Tool"
            value={tool}
            onChange={setTool}
            options={Object.fromEntries((tools.data ?? []).map(({ name }) => [name, name]))}
          />
        </div>
        <TextArea label="Arguments (JSON)" isCode rows={3} value={args} onChange={setArgs} />
        <Button type="submit" busy={asking.isPending}>
          Explain
        </Button>
      </form>
      <div className="mt-4">
        <ErrorNote error={asking.error} />
        {asking.data && <Explanation found={asking.data} />}
      </div>
    </Card>
  );
}

async function explain(workspaceId: string, agentId: string, tool: string, args: string): Promise<Schema["Explained"]> {
  return taken(
    api.POST("/api/v1/workspaces/{workspace_id}/explain", {
      params: { path: { workspace_id: workspaceId } },
      body: { tool, args: parsed(args), agent_id: agentId },
    }),
  );
}

function parsed(args: string): Record<string, unknown> {
  try {
    return JSON.parse(args);
  } catch (error) {
    throw new Error(`The arguments are not JSON: ${error instanceof Error ? error.message : error}`);
  }
}

function Explanation({ found }: { found: Schema["Explained"] }) {
  const { words, tone } = VERDICTS[found.verdict];
  return (
    <div role="status" className="space-y-2 rounded-md border border-line p-3">
      <div className="flex flex-wrap items-center gap-2">
        <Badge tone={tone}>{words}</Badge>
        <code className="text-xs">{found.rule}</code>
      </div>
      <p>{found.reason}</p>
      <details>
        <summary className="text-muted">Every rule that was looked at</summary>
        <ol className="mt-1 list-decimal pl-5 text-xs">
          {found.considered.map((one) => (
            <li key={one}>{one}</li>
          ))}
        </ol>
      </details>
    </div>
  );
}
