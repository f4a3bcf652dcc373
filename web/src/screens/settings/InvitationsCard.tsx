/** Invites people without an account, by a link that is shown once. */
import { useMutation, useQuery } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { api, type Schema, unwrap } from "../../api/client";
import { Button } from "../../components/Button";
import { Card } from "../../components/Card";
import { ConfirmButton } from "../../components/ConfirmButton";
import { ErrorNote } from "../../components/ErrorNote";
import { Field } from "../../components/Field";
import { RelativeTime } from "../../components/RelativeTime";
import { Select } from "../../components/Select";
import { Table } from "../../components/Table";
import { useRefetch } from "./data";

type Role = Schema["WorkspaceRole"];

export function InvitationsCard({ workspaceId, roles }: { workspaceId: string; roles: Record<Role, string> }) {
  const key = [workspaceId, "invitations"];
  const refetch = useRefetch(key);
  const path = { workspace_id: workspaceId };
  const open = useQuery({
    queryKey: key,
    queryFn: () => unwrap(api.GET("/api/v1/workspaces/{workspace_id}/invitations", { params: { path } })),
  });
  const [email, setEmail] = useState("");
  const [role, setRole] = useState<Role>("member");
  const invite = useMutation({
    mutationFn: () =>
      unwrap(api.POST("/api/v1/workspaces/{workspace_id}/invitations", { params: { path }, body: { email, role } })),
    onSuccess: () => {
      setEmail("");
      return refetch();
    },
  });

  function submit(event: FormEvent) {
    event.preventDefault();
    invite.mutate();
  }

  return (
    <Card title="Invite a person without an account">
      <form onSubmit={submit} className="flex flex-wrap items-end gap-3">
        <div className="min-w-52 grow">
          <Field label="Email address to invite" type="email" required value={email} onChange={setEmail} />
        </div>
        <Select label="Invited as" value={role} onChange={(chosen) => setRole(chosen as Role)} options={roles} />
        <Button type="submit" variant="primary" busy={invite.isPending}>
          Invite
        </Button>
      </form>
      <div className="mt-3 space-y-3">
        <ErrorNote error={invite.error ?? open.error} />
        {invite.data && (
          <p className="text-sm">
            Send this link only to {invite.data.email}. It is shown once and works once:{" "}
            <code className="wrap-anywhere">{invite.data.link}</code>
          </p>
        )}
        {open.data && open.data.items.length > 0 && (
          <Table
            label="Pending invitations"
            rows={open.data.items}
            keyOf={(one) => one.id}
            columns={[
              { title: "Email address", cell: (one) => one.email },
              { title: "Role", cell: (one) => roles[one.role] },
              { title: "Expires", cell: (one) => <RelativeTime time={one.expires_at} /> },
              {
                title: "Revoke",
                isRight: true,
                cell: (one) => (
                  <ConfirmButton
                    label={`Revoke invitation for ${one.email}`}
                    consequence="The invitation link stops working."
                    act={async () => {
                      await unwrap(
                        api.DELETE("/api/v1/workspaces/{workspace_id}/invitations/{invitation_id}", {
                          params: { path: { ...path, invitation_id: one.id } },
                        }),
                      );
                      await refetch();
                    }}
                  >
                    Revoke
                  </ConfirmButton>
                ),
              },
            ]}
          />
        )}
      </div>
    </Card>
  );
}
