import { useQuery } from "@tanstack/react-query";
import { api, type Schema, taken } from "../../api/client";
import type { ScreenProps } from "../../app/screens";
import { Ago } from "../../parts/Ago";
import { Badge } from "../../parts/Badge";
import { ConfirmButton } from "../../parts/ConfirmButton";
import { Empty } from "../../parts/Empty";
import { ErrorNote } from "../../parts/ErrorNote";
import { Loading } from "../../parts/Loading";
import { Table } from "../../parts/Table";
import { useAgents, useMembers, useRefetch } from "./data";

type Grant = Schema["GrantAnswer"];

export function RulesSection({ workspaceId }: ScreenProps) {
  const grants = useQuery({
    queryKey: [workspaceId, "grants"],
    queryFn: () =>
      taken(api.GET("/api/v1/workspaces/{workspace_id}/grants", { params: { path: { workspace_id: workspaceId } } })),
  });
  const agents = useAgents(workspaceId).data?.items ?? [];
  const members = useMembers(workspaceId).data?.items ?? [];
  if (grants.isPending) return <Loading what="standing answers" />;
  if (grants.error) return <ErrorNote error={grants.error} />;
  if (grants.data.items.length === 0) {
    return (
      <Empty title="Nothing is allowed beforehand">
        When an agent asks, you can allow the same again for its session, or always. Such answers are listed here.
      </Empty>
    );
  }
  return (
    <Table
      label="Standing answers"
      rows={grants.data.items}
      keyOf={(grant) => grant.id}
      columns={[
        { title: "Agent", cell: (grant) => agents.find((one) => one.id === grant.agent_id)?.name ?? "–" },
        { title: "May, without asking", cell: (grant) => <Rule rule={grant.rule} /> },
        {
          title: "For",
          cell: (grant) => (grant.session_id ? <Badge>one session</Badge> : <Badge tone="warn">always</Badge>),
        },
        {
          title: "Allowed by",
          cell: (grant) => (
            <>
              {nameOf(members.find((one) => one.user_id === grant.created_by))}
              <span className="block text-xs text-muted">
                <Ago time={grant.created_at} />
              </span>
            </>
          ),
        },
        { title: "End", isRight: true, cell: (grant) => <Revocation workspaceId={workspaceId} grant={grant} /> },
      ]}
    />
  );
}

function nameOf(member: Schema["MemberAnswer"] | undefined): string {
  return member?.full_name ?? member?.email ?? "someone who left";
}

function Rule({ rule }: { rule: Schema["ShownRule"] }) {
  const within = [...(rule.paths ?? []), ...(rule.commands ?? [])];
  return (
    <>
      <code className="font-medium">{rule.tool}</code>
      {within.map((one) => (
        <code key={one} className="block text-xs wrap-anywhere text-muted">
          {one}
        </code>
      ))}
    </>
  );
}

function Revocation({ workspaceId, grant }: { workspaceId: string; grant: Grant }) {
  const refetch = useRefetch([workspaceId, "grants"]);
  return (
    <ConfirmButton
      label={`Revoke ${grant.rule.tool}`}
      consequence="The agent will ask again the next time. What it did until now stays as it is."
      act={async () => {
        await taken(
          api.DELETE("/api/v1/workspaces/{workspace_id}/grants/{grant_id}", {
            params: { path: { workspace_id: workspaceId, grant_id: grant.id } },
          }),
        );
        await refetch();
      }}
    >
      Revoke
    </ConfirmButton>
  );
}
