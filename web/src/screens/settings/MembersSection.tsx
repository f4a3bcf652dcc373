import { useMutation } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { api, type Schema, unwrap } from "../../api/client";
import { useMe } from "../../app/me";
import type { ScreenProps } from "../../app/screenProps";
import { Badge } from "../../components/Badge";
import { Button } from "../../components/Button";
import { Card } from "../../components/Card";
import { ConfirmButton } from "../../components/ConfirmButton";
import { ErrorNote } from "../../components/ErrorNote";
import { Field } from "../../components/Field";
import { Loading } from "../../components/Loading";
import { RelativeTime } from "../../components/RelativeTime";
import { Select } from "../../components/Select";
import { Table } from "../../components/Table";
import { useIsOwner, useMembers, useRefetch } from "./data";
import { InvitationsCard } from "./InvitationsCard";

type Member = Schema["MemberOut"];
type Role = Schema["WorkspaceRole"];

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
          { title: "Member", cell: (member) => <Person member={member} isMe={member.user_id === me?.id} /> },
          {
            title: "Role",
            cell: (member) =>
              isOwner ? <RoleChoice workspaceId={workspaceId} member={member} /> : <Badge>{ROLES[member.role]}</Badge>,
          },
          { title: "Joined", cell: (member) => <RelativeTime time={member.joined_at} /> },
          {
            title: "Remove",
            isRight: true,
            cell: (member) =>
              (isOwner || member.user_id === me?.id) && <Removal workspaceId={workspaceId} member={member} />,
          },
        ]}
      />
      {isOwner ? (
        <>
          <NewMember workspaceId={workspaceId} />
          <InvitationsCard workspaceId={workspaceId} roles={ROLES} />
        </>
      ) : (
        <p className="text-muted">Only owners can add members and change roles.</p>
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
      unwrap(
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
      consequence="This person loses access to the workspace. Their changes stay in the history and the audit log."
      act={async () => {
        await unwrap(
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

function NewMember({ workspaceId }: { workspaceId: string }) {
  const refetch = useRefetch([workspaceId, "members"]);
  const [email, setEmail] = useState("");
  const [role, setRole] = useState<Role>("member");
  const add = useMutation({
    mutationFn: () =>
      unwrap(
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
    <Card title="Add member">
      <form onSubmit={submit} className="flex flex-wrap items-end gap-3">
        <div className="min-w-52 grow">
          <Field label="Email address" type="email" required value={email} onChange={setEmail} />
        </div>
        <Select label="Role" value={role} onChange={(chosen) => setRole(chosen as Role)} options={ROLES} />
        <Button type="submit" variant="primary" busy={add.isPending}>
          Add
        </Button>
      </form>
      <div className="mt-3 space-y-2">
        <p className="text-xs text-muted">
          The person needs an account on this server. Invite people without one below.
        </p>
        <ErrorNote error={add.error} />
      </div>
    </Card>
  );
}
