import { useMutation, useQuery } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { api, type Schema, unwrap } from "../../api/client";
import { Badge, type Tone } from "../../components/Badge";
import { Button } from "../../components/Button";
import { Card } from "../../components/Card";
import { ErrorNote } from "../../components/ErrorNote";
import { Select } from "../../components/Select";
import { TextArea } from "../../components/TextArea";

const ACTIONS: Record<Schema["ExplanationOut"]["action"], { text: string; tone: Tone }> = {
  allow: { text: "Allowed", tone: "good" },
  ask: { text: "Needs approval", tone: "warn" },
  deny: { text: "Denied", tone: "bad" },
};

interface Props {
  workspaceId: string;
  agents: Schema["AgentOut"][];
}

/** Shows whether a call is allowed, and why, without running it. */
export function ExplainForm({ workspaceId, agents }: Props) {
  const tools = useQuery({
    queryKey: [workspaceId, "tools"],
    queryFn: () =>
      unwrap(api.GET("/api/v1/workspaces/{workspace_id}/tools", { params: { path: { workspace_id: workspaceId } } })),
  });
  const sessions = useQuery({
    queryKey: [workspaceId, "sessions", "explain"],
    queryFn: () =>
      unwrap(
        api.GET("/api/v1/workspaces/{workspace_id}/sessions", { params: { path: { workspace_id: workspaceId } } }),
      ),
  });
  const [agentId, setAgentId] = useState(agents[0]?.id ?? "");
  const [sessionId, setSessionId] = useState("");
  const [tool, setTool] = useState("write");
  const [args, setArgs] = useState('{"path": "/docs/start.md", "content": "…"}');
  const explanation = useMutation({ mutationFn: () => explain(workspaceId, agentId, sessionId, tool, args) });
  const ofAgent = (sessions.data?.items ?? []).filter((one) => one.agent_id === agentId);

  function submit(event: FormEvent) {
    event.preventDefault();
    explanation.mutate();
  }

  return (
    <Card title="Test a call">
      <form onSubmit={submit} className="space-y-3">
        <div className="flex flex-wrap gap-3">
          <Select
            label="Agent"
            value={agentId}
            onChange={(id) => {
              setAgentId(id);
              setSessionId("");
            }}
            options={Object.fromEntries(agents.map((agent) => [agent.id, agent.name]))}
          />
          <Select
            label="Session"
            value={sessionId}
            onChange={setSessionId}
            options={{
              "": "None",
              ...Object.fromEntries(ofAgent.map((one) => [one.id, one.title ?? `Session ${one.id.slice(-6)}`])),
            }}
          />
          <Select
            label="Tool"
            value={tool}
            onChange={setTool}
            options={Object.fromEntries((tools.data ?? []).map(({ name }) => [name, name]))}
          />
        </div>
        <TextArea label="Arguments (JSON)" isCode rows={3} value={args} onChange={setArgs} />
        <Button type="submit" busy={explanation.isPending}>
          Explain
        </Button>
      </form>
      <div className="mt-4">
        <ErrorNote error={explanation.error} />
        {explanation.data && <Explanation found={explanation.data} />}
      </div>
    </Card>
  );
}

async function explain(
  workspaceId: string,
  agentId: string,
  sessionId: string,
  tool: string,
  args: string,
): Promise<Schema["ExplanationOut"]> {
  return unwrap(
    api.POST("/api/v1/workspaces/{workspace_id}/explain", {
      params: { path: { workspace_id: workspaceId } },
      body: { tool, args: parseArguments(args), ...(sessionId ? { session_id: sessionId } : { agent_id: agentId }) },
    }),
  );
}

function parseArguments(args: string): Record<string, unknown> {
  try {
    return JSON.parse(args);
  } catch (error) {
    throw new Error(`The arguments are not valid JSON: ${error instanceof Error ? error.message : error}`);
  }
}

function Explanation({ found }: { found: Schema["ExplanationOut"] }) {
  const { text, tone } = ACTIONS[found.action];
  const badge = found.asks_about === "effect" ? "Its effect needs approval" : text;
  return (
    <div role="status" className="space-y-2 rounded-md border border-line p-3">
      <div className="flex flex-wrap items-center gap-2">
        <Badge tone={tone}>{badge}</Badge>
        <code className="text-xs">{found.rule}</code>
      </div>
      <p>{found.reason}</p>
      <details>
        <summary className="text-muted">Rules checked</summary>
        <ol className="mt-1 list-decimal pl-6 text-xs">
          {found.rules_checked.map((one) => (
            <li key={one}>{one}</li>
          ))}
        </ol>
      </details>
    </div>
  );
}
