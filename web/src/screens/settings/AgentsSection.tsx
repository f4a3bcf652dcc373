import { useState } from "react";
import { api, type Schema, unwrap } from "../../api/client";
import type { ScreenProps } from "../../app/screenProps";
import { Badge, type Tone } from "../../components/Badge";
import { Button } from "../../components/Button";
import { Card } from "../../components/Card";
import { ConfirmButton } from "../../components/ConfirmButton";
import { Dialog } from "../../components/Dialog";
import { Empty } from "../../components/Empty";
import { ErrorNote } from "../../components/ErrorNote";
import { RelativeTime } from "../../components/RelativeTime";
import { Skeleton } from "../../components/Skeleton";
import { AgentForm } from "./AgentForm";
import { useAgents, useIsOwner, useRefetch } from "./data";
import { ExplainForm } from "./ExplainForm";
import { NewKeyForm } from "./NewKeyForm";

type Agent = Schema["AgentOut"];

const TONES: Record<Schema["TrustLevel"], Tone> = {
  supervised: "good",
  guided: "accent",
  review: "accent",
  autonomous: "warn",
};

export function AgentsSection({ workspaceId }: ScreenProps) {
  const agents = useAgents(workspaceId);
  const isOwner = useIsOwner(workspaceId);
  const [isAdding, setIsAdding] = useState(false);
  if (agents.isPending) return <Skeleton what="agents" />;
  if (agents.error) return <ErrorNote error={agents.error} />;
  return (
    <>
      {agents.data.items.length === 0 && (
        <Empty title="No agents yet">{isOwner ? "Add the first agent below." : "An owner can add one."}</Empty>
      )}
      {agents.data.items.map((agent) => (
        <AgentCard key={agent.id} workspaceId={workspaceId} agent={agent} isOwner={isOwner} />
      ))}
      {isOwner && (
        <Button variant="primary" onClick={() => setIsAdding(true)}>
          Add agent
        </Button>
      )}
      <Dialog title="Add agent" isOpen={isAdding} onClose={() => setIsAdding(false)} wide>
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
        <Fact name="Model" value={[rules.provider, rules.model].filter(Boolean).join(" · ") || "chosen in chat"} />
        <Fact name="Toolsets" value={rules.toolsets.join(", ")} />
        <div>
          <dt className="text-xs text-muted">Updated</dt>
          <dd>
            <RelativeTime time={agent.updated_at} />
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
  if (permissions === null) return <p className="mt-3 text-muted">Read-only</p>;
  return (
    <ul className="mt-3 flex flex-wrap gap-2" aria-label="Tool permissions">
      {Object.entries(permissions).map(([tool, permission]) => (
        <li key={tool}>
          <Badge tone={permission.allowed ? "good" : "bad"} title={permission.allowed ? "allowed" : "denied"}>
            {permission.allowed ? "" : "denied: "}
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
        Edit <span className="sr-only">{agent.name}</span>
      </Button>
      <Button small onClick={() => setOpen("key")}>
        Create key <span className="sr-only">for {agent.name}</span>
      </Button>
      <ConfirmButton
        label={`Remove ${agent.name}`}
        consequence="Its keys stop working immediately. Its sessions and changes stay in the history."
        act={async () => {
          await unwrap(api.DELETE("/api/v1/workspaces/{workspace_id}/agents/{agent_id}", { params: { path } }));
          await refetch();
        }}
      >
        Remove
      </ConfirmButton>
      <Dialog title={`Edit ${agent.name}`} isOpen={open === "rules"} onClose={close} wide>
        <AgentForm workspaceId={workspaceId} agent={agent} onSaved={close} />
      </Dialog>
      <Dialog title={`API key for ${agent.name}`} isOpen={open === "key"} onClose={close}>
        <p className="mb-3 text-muted">Programs with this key call tools as this agent, with its permissions.</p>
        <NewKeyForm
          create={(body) =>
            unwrap(api.POST("/api/v1/workspaces/{workspace_id}/agents/{agent_id}/keys", { params: { path }, body }))
          }
        />
      </Dialog>
    </div>
  );
}
