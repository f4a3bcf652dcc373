import { useQuery } from "@tanstack/react-query";
import { api, type Schema, unwrap } from "../../api/client";
import type { ScreenProps } from "../../app/screenProps";
import { useMayWrite } from "../../app/workspaces";
import { shownAccess } from "../../approvals/access";
import { Badge } from "../../components/Badge";
import { EXACT, ShownText } from "../../components/Code";
import { ConfirmButton } from "../../components/ConfirmButton";
import { Empty } from "../../components/Empty";
import { ErrorNote } from "../../components/ErrorNote";
import { RelativeTime } from "../../components/RelativeTime";
import { Skeleton } from "../../components/Skeleton";
import { Table } from "../../components/Table";
import { useAgents, useMembers, useRefetch } from "./data";

type Grant = Schema["GrantOut"];

export function PermissionRulesSection({ workspaceId }: ScreenProps) {
  const grants = useQuery({
    queryKey: [workspaceId, "grants"],
    queryFn: () =>
      unwrap(api.GET("/api/v1/workspaces/{workspace_id}/grants", { params: { path: { workspace_id: workspaceId } } })),
  });
  const mayWrite = useMayWrite(workspaceId);
  const agents = useAgents(workspaceId).data?.items ?? [];
  const members = useMembers(workspaceId).data?.items ?? [];
  if (grants.isPending) return <Skeleton what="saved approvals" />;
  if (grants.error) return <ErrorNote error={grants.error} />;
  if (grants.data.items.length === 0) {
    return (
      <Empty title="No saved approvals yet">Approve a call for its session or always, and its rule appears here.</Empty>
    );
  }
  return (
    <Table
      label="Saved approvals"
      rows={grants.data.items}
      keyOf={(grant) => grant.id}
      columns={[
        { title: "Agent", cell: (grant) => agents.find((one) => one.id === grant.agent_id)?.name ?? "–" },
        { title: "Allows", cell: (grant) => <Rule rule={grant.rule} /> },
        {
          title: "Scope",
          cell: (grant) => (grant.session_id ? <Badge>session</Badge> : <Badge tone="warn">always</Badge>),
        },
        {
          title: "Approved by",
          cell: (grant) => (
            <>
              {nameOf(members.find((one) => one.user_id === grant.created_by))}
              <span className="block text-xs text-muted">
                <RelativeTime time={grant.created_at} />
              </span>
            </>
          ),
        },
        ...(mayWrite
          ? [
              {
                title: "Revoke",
                isRight: true,
                cell: (grant: Grant) => <Revocation workspaceId={workspaceId} grant={grant} />,
              },
            ]
          : []),
      ]}
    />
  );
}

function nameOf(member: Schema["MemberOut"] | undefined): string {
  return member?.full_name ?? member?.email ?? "former member";
}

function Rule({ rule }: { rule: Schema["GrantRuleOut"] }) {
  const limits = Object.entries(rule.arguments ?? {}).map(([name, glob]) => `${name}=${glob}`);
  const within = [
    ...(rule.paths ?? []),
    ...(rule.commands ?? []),
    ...(rule.hosts ?? []),
    ...shownAccess(rule.access),
    ...limits,
  ];
  return (
    <>
      <code className="font-medium">{rule.tools.join(", ")}</code>
      {within.map((one) => (
        <code key={one} className={`block text-xs text-muted ${EXACT}`}>
          <ShownText text={one} />
        </code>
      ))}
    </>
  );
}

function Revocation({ workspaceId, grant }: { workspaceId: string; grant: Grant }) {
  const refetch = useRefetch([workspaceId, "grants"]);
  return (
    <ConfirmButton
      label={`Revoke ${grant.rule.tools.join(", ")}`}
      consequence="The agent asks for approval the next time. Its past changes stay."
      act={async () => {
        await unwrap(
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
