import { useState } from "react";
import { api, type Schema, taken } from "../../api/client";
import type { ScreenProps } from "../../app/screens";
import { Ago } from "../../parts/Ago";
import { Badge, type Tone } from "../../parts/Badge";
import { Button } from "../../parts/Button";
import { Card } from "../../parts/Card";
import { ConfirmButton } from "../../parts/ConfirmButton";
import { Dialog } from "../../parts/Dialog";
import { Empty } from "../../parts/Empty";
import { ErrorNote } from "../../parts/ErrorNote";
import { Loading } from "../../parts/Loading";
import { AgentForm } from "./AgentForm";
import { useAgents, useIsOwner, useRefetch } from "./data";
import { ExplainForm } from "./ExplainForm";
import { NewKeyForm } from "./NewKeyForm";

type Agent = Schema["AgentAnswer"];

const TONES: Record<Schema["Trust"], Tone> = { supervised: "good", guided: "accent", autonomous: "warn" };

export function AgentsSection({ workspaceId }: ScreenProps) {
  const agents = useAgents(workspaceId);
  const isOwner = useIsOwner(workspaceId);
  const [isAdding, setIsAdding] = useState(false);
  if (agents.isPending) return <Loading what="agents" />;
  if (agents.error) return <ErrorNote error={agents.error} />;
  return (
    <>
      {agents.data.items.length === 0 && (
        <Empty title="No agents yet">{isOwner ? "Add the first one below." : "An owner can add one."}</Empty>
      )}
      {agents.data.items.map((agent) => (
        <AgentCard key={agent.id} workspaceId={workspaceId} agent={agent} isOwner={isOwner} />
      ))}
      {isOwner && (
        <Button look="primary" onClick={() => setIsAdding(true)}>
          Add an agent
        </Button>
      )}
      <Dialog title="Add an agent" isOpen={isAdding} onClose={() => setIsAdding(false)} wide>
        <AgentForm workspaceId={workspaceId} onSaved={() => setIsAdding(false)} />
      </Dialog>
      {agents.data.items.length > 0 && <ExplainForm workspaceId={workspaceId} agents={agents.data.items} />}
    </>
  );
}

function AgentCard({ workspaceId, agent, isOwner }: { workspaceId: string; agent: Agent; isOwner: boolean }) {
  const { rules } = agent;
  return (
    <Card title={agent.name} aside={<Badge tone={TONES[rules.trust]}>{rules.trust}</Badge>}>
      <dl className="grid gap-x-6 gap-y-2 md:grid-cols-3">
        <Fact name="Model" value={[rules.provider, rules.model].filter(Boolean).join(" · ") || "chosen in the chat"} />
        <Fact name="Toolsets" value={rules.toolsets.join(", ")} />
        <div>
          <dt className="text-xs text-muted">Changed</dt>
          <dd>
            <Ago time={agent.updated_at} />
          </dd>
        </div>
      </dl>
      <Permissions permissions={rules.tool_permissions ?? null} />
      {isOwner && <Actions workspaceId={workspaceId} agent={agent} />}
    </Card>
  );
}

function Fact({ name, value }: { name: string; value: string }) {
  return (
    <div>
      <dt className="text-xs text-muted">{name}</dt>
      <dd className="wrap-anywhere">{value}</dd>
    </div>
  );
}

function Permissions({ permissions }: { permissions: Record<string, Schema["ToolPermission"]> | null }) {
  if (permissions === null) return <p className="mt-3 text-muted">It reads, and changes nothing.</p>;
  return (
    <ul className="mt-3 flex flex-wrap gap-1.5" aria-label="What it may use">
      {Object.entries(permissions).map(([tool, permission]) => (
        <li key={tool}>
          <Badge tone={permission.allowed ? "good" : "bad"} title={permission.allowed ? "allowed" : "not allowed"}>
            {permission.allowed ? "" : "not "}
            {tool}
            {permission.paths && `: ${permission.paths.join(", ")}`}
            {permission.hosts.length > 0 && ` → ${permission.hosts.join(", ")}`}
          </Badge>
        </li>
      ))}
    </ul>
  );
}

function Actions({ workspaceId, agent }: { workspaceId: string; agent: Agent }) {
  const refetch = useRefetch([workspaceId, "agents"]);
  const [open, setOpen] = useState<"rules" | "key" | null>(null);
  const close = () => setOpen(null);
  const path = { workspace_id: workspaceId, agent_id: agent.id };
  return (
    <div className="mt-4 flex flex-wrap gap-2">
      <Button small onClick={() => setOpen("rules")}>
        Change {agent.name}
      </Button>
      <Button small onClick={() => setOpen("key")}>
        Make a key for {agent.name}
      </Button>
      <ConfirmButton
        label={`Remove ${agent.name}`}
        consequence="Its keys end at once. Its sessions and what it did stay in the history."
        act={async () => {
          await taken(api.DELETE("/api/v1/workspaces/{workspace_id}/agents/{agent_id}", { params: { path } }));
          await refetch();
        }}
      />
      <Dialog title={`Change ${agent.name}`} isOpen={open === "rules"} onClose={close} wide>
        <AgentForm workspaceId={workspaceId} agent={agent} onSaved={close} />
      </Dialog>
      <Dialog title={`A key for ${agent.name}`} isOpen={open === "key"} onClose={close}>
        <p className="mb-3 text-muted">With it a program calls tools here as this agent, bound by its rules.</p>
        <NewKeyForm
          make={(body) =>
            taken(api.POST("/api/v1/workspaces/{workspace_id}/agents/{agent_id}/keys", { params: { path }, body }))
          }
        />
      </Dialog>
    </div>
  );
}
