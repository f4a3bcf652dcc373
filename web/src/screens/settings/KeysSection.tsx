import { api, type Schema, unwrap } from "../../api/client";
import type { ScreenProps } from "../../app/screenProps";
import { Badge } from "../../components/Badge";
import { Card } from "../../components/Card";
import { ConfirmButton } from "../../components/ConfirmButton";
import { Empty } from "../../components/Empty";
import { ErrorNote } from "../../components/ErrorNote";
import { RelativeTime } from "../../components/RelativeTime";
import { Skeleton } from "../../components/Skeleton";
import { Table } from "../../components/Table";
import { useAgents, useKeys, useRefetch } from "./data";
import { NewKeyForm } from "./NewKeyForm";

export function KeysSection({ workspaceId }: ScreenProps) {
  const keys = useKeys();
  const agents = useAgents(workspaceId).data?.items ?? [];
  if (keys.isPending) return <Skeleton what="keys" />;
  if (keys.error) return <ErrorNote error={keys.error} />;
  return (
    <>
      {keys.data.items.length === 0 ? (
        <Empty title="No keys yet">Create one below for yourself, or under Agents for an agent.</Empty>
      ) : (
        <Table
          label="API keys"
          rows={keys.data.items}
          keyOf={(key) => key.id}
          columns={[
            { title: "Name", cell: (key) => <span className="font-medium">{key.name}</span> },
            { title: "Prefix", cell: (key) => <code className="text-xs">{key.hint}</code> },
            { title: "Acts as", cell: (key) => <Holder agentId={key.agent_id} agents={agents} /> },
            { title: "Created", cell: (key) => <RelativeTime time={key.created_at} /> },
            {
              title: "Expires",
              cell: (key) => (key.expires_at ? <RelativeTime time={key.expires_at} /> : "never"),
            },
            { title: "Revoke", isRight: true, cell: (key) => <Revocation keyId={key.id} name={key.name} /> },
          ]}
        />
      )}
      <Card title="New key that acts as you">
        <NewKeyForm create={(body) => unwrap(api.POST("/api/v1/api-keys", { body }))} />
      </Card>
    </>
  );
}

function Holder({ agentId, agents }: { agentId: string | null; agents: Schema["AgentOut"][] }) {
  if (agentId === null) return <Badge tone="accent">you</Badge>;
  const agent = agents.find((one) => one.id === agentId);
  return <>{agent ? `agent ${agent.name}` : "an agent of another workspace"}</>;
}

function Revocation({ keyId, name }: { keyId: string; name: string }) {
  const refetch = useRefetch(["keys"]);
  return (
    <ConfirmButton
      label={`Revoke ${name}`}
      consequence="The server rejects requests with this key from now on."
      act={async () => {
        await unwrap(api.DELETE("/api/v1/api-keys/{key_id}", { params: { path: { key_id: keyId } } }));
        await refetch();
      }}
    >
      Revoke
    </ConfirmButton>
  );
}
