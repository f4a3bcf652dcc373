import { api, type Schema, taken } from "../../api/client";
import type { ScreenProps } from "../../app/screens";
import { Ago } from "../../parts/Ago";
import { Badge } from "../../parts/Badge";
import { Card } from "../../parts/Card";
import { ConfirmButton } from "../../parts/ConfirmButton";
import { Empty } from "../../parts/Empty";
import { ErrorNote } from "../../parts/ErrorNote";
import { Loading } from "../../parts/Loading";
import { Table } from "../../parts/Table";
import { useAgents, useKeys, useRefetch } from "./data";
import { NewKeyForm } from "./NewKeyForm";

export function KeysSection({ workspaceId }: ScreenProps) {
  const keys = useKeys();
  const agents = useAgents(workspaceId).data?.items ?? [];
  if (keys.isPending) return <Loading what="keys" />;
  if (keys.error) return <ErrorNote error={keys.error} />;
  return (
    <>
      {keys.data.items.length === 0 ? (
        <Empty title="No keys yet">Make one below for a program, or at an agent for the agent.</Empty>
      ) : (
        <Table
          label="API keys"
          rows={keys.data.items}
          keyOf={(key) => key.id}
          columns={[
            { title: "Name", cell: (key) => <span className="font-medium">{key.name}</span> },
            { title: "Begins with", cell: (key) => <code className="text-xs">{key.hint}</code> },
            { title: "Acts as", cell: (key) => <Holder agentId={key.agent_id} agents={agents} /> },
            { title: "Made", cell: (key) => <Ago time={key.created_at} /> },
            { title: "Ends", cell: (key) => (key.expires_at ? <Ago time={key.expires_at} /> : "when revoked") },
            { title: "End", isRight: true, cell: (key) => <Revocation keyId={key.id} name={key.name} /> },
          ]}
        />
      )}
      <Card title="A key for a program that acts as you">
        <NewKeyForm make={(body) => taken(api.POST("/api/v1/api-keys", { body }))} />
      </Card>
    </>
  );
}

function Holder({ agentId, agents }: { agentId: string | null; agents: Schema["AgentAnswer"][] }) {
  if (agentId === null) return <Badge tone="accent">you</Badge>;
  const agent = agents.find((one) => one.id === agentId);
  return <>{agent ? `agent ${agent.name}` : "an agent of another workspace"}</>;
}

function Revocation({ keyId, name }: { keyId: string; name: string }) {
  const refetch = useRefetch(["keys"]);
  return (
    <ConfirmButton
      label={`Revoke ${name}`}
      consequence="Whatever uses this key is refused from now on."
      act={async () => {
        await taken(api.DELETE("/api/v1/api-keys/{key_id}", { params: { path: { key_id: keyId } } }));
        await refetch();
      }}
    >
      Revoke
    </ConfirmButton>
  );
}
