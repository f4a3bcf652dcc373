import { useMutation } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { api, type Schema, taken } from "../../api/client";
import { useMe } from "../../app/me";
import type { ScreenProps } from "../../app/screens";
import { Ago } from "../../parts/Ago";
import { Badge } from "../../parts/Badge";
import { Button } from "../../parts/Button";
import { Card } from "../../parts/Card";
import { ConfirmButton } from "../../parts/ConfirmButton";
import { ErrorNote } from "../../parts/ErrorNote";
import { Field } from "../../parts/Field";
import { Loading } from "../../parts/Loading";
import { Select } from "../../parts/Select";
import { Table } from "../../parts/Table";
import { useIsOwner, useMembers, useRefetch } from "./data";

type Member = Schema["MemberAnswer"];
type Role = Schema["Role"];

const ROLES: Record<Role, string> = { viewer: "Viewer", member: "Member", owner: "Owner" };

export function MembersSection({ workspaceId }: ScreenProps) {
  const members = useMembers(workspaceId);
  const isOwner = useIsOwner(workspaceId);
  const me = useMe().data;
  if (members.isPending) return <Loading what="members" />;
  if (members.error) return <ErrorNote error={members.error} />;
  return (
    <>
      <Table
        label="Members"
        rows={members.data.items}
        keyOf={(member) => member.user_id}
        columns={[
          { title: "Who", cell: (member) => <Person member={member} isMe={member.user_id === me?.id} /> },
          {
            title: "Role",
            cell: (member) =>
              isOwner ? <RoleChoice workspaceId={workspaceId} member={member} /> : <Badge>{ROLES[member.role]}</Badge>,
          },
          { title: "Since", cell: (member) => <Ago time={member.joined_at} /> },
          {
            title: "Leave",
            isRight: true,
            cell: (member) =>
              (isOwner || member.user_id === me?.id) && <Removal workspaceId={workspaceId} member={member} />,
          },
        ]}
      />
      {isOwner ? (
        <Invitation workspaceId={workspaceId} />
      ) : (
        <p className="text-muted">Only owners take people in and give roles.</p>
      )}
    </>
  );
}

function Person({ member, isMe }: { member: Member; isMe: boolean }) {
  return (
    <>
      <span className="font-medium">{member.full_name ?? member.email}</span> {isMe && <Badge tone="accent">you</Badge>}
      {member.full_name && <span className="block text-xs text-muted">{member.email}</span>}
    </>
  );
}

function RoleChoice({ workspaceId, member }: { workspaceId: string; member: Member }) {
  const refetch = useRefetch([workspaceId, "members"]);
  const change = useMutation({
    mutationFn: (role: Role) =>
      taken(
        api.PATCH("/api/v1/workspaces/{workspace_id}/members/{user_id}", {
          params: { path: { workspace_id: workspaceId, user_id: member.user_id } },
          body: { role },
        }),
      ),
    onSuccess: refetch,
  });
  return (
    <>
      <Select
        small
        isLabelHidden
        label={`Role of ${member.full_name ?? member.email}`}
        value={member.role}
        onChange={(role) => change.mutate(role as Role)}
        options={ROLES}
        disabled={change.isPending}
      />
      <ErrorNote error={change.error} />
    </>
  );
}

function Removal({ workspaceId, member }: { workspaceId: string; member: Member }) {
  const refetch = useRefetch([workspaceId, "members"]);
  const name = member.full_name ?? member.email;
  return (
    <ConfirmButton
      label={`Remove ${name}`}
      consequence="They can no longer see this workspace. What they did stays in its history and in its book."
      act={async () => {
        await taken(
          api.DELETE("/api/v1/workspaces/{workspace_id}/members/{user_id}", {
            params: { path: { workspace_id: workspaceId, user_id: member.user_id } },
          }),
        );
        await refetch();
      }}
    >
      Remove
    </ConfirmButton>
  );
}

function Invitation({ workspaceId }: { workspaceId: string }) {
  const refetch = useRefetch([workspaceId, "members"]);
  const [email, setEmail] = useState("");
  const [role, setRole] = useState<Role>("member");
  const add = useMutation({
    mutationFn: () =>
      taken(
        api.POST("/api/v1/workspaces/{workspace_id}/members", {
          params: { path: { workspace_id: workspaceId } },
          body: { email, role },
        }),
      ),
    onSuccess: () => {
      setEmail("");
      return refetch();
    },
  });

  function submit(event: FormEvent) {
    event.preventDefault();
    add.mutate();
  }

  return (
    <Card title="Take someone in">
      <form onSubmit={submit} className="flex flex-wrap items-end gap-3">
        <div className="min-w-52 grow">
          <Field label="Their e-mail address" type="email" required value={email} onChange={setEmail} />
        </div>
        <Select label="Role" value={role} onChange={(chosen) => setRole(chosen as Role)} options={ROLES} />
        <Button type="submit" look="primary" busy={add.isPending}>
          Take in
        </Button>
      </form>
      <div className="mt-3 space-y-2">
        <p className="text-xs text-muted">They need an account on this server first.</p>
        <ErrorNote error={add.error} />
      </div>
    </Card>
  );
}
