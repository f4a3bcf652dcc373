import { useMutation, useQuery } from "@tanstack/react-query";
import { api, type Schema, unwrap } from "../../api/client";
import { Badge } from "../../components/Badge";
import { Button } from "../../components/Button";
import { Card } from "../../components/Card";
import { Code } from "../../components/Code";
import { ConfirmButton } from "../../components/ConfirmButton";
import { ErrorNote } from "../../components/ErrorNote";
import { RelativeTime } from "../../components/RelativeTime";
import { Table } from "../../components/Table";
import { useRefetch } from "./data";

type Account = Schema["AccountOut"];

const KEY = ["users"];

/** All accounts of the server, for its administrators. */
export function UsersCard({ meId }: { meId: string }) {
  const users = useQuery({ queryKey: KEY, queryFn: () => unwrap(api.GET("/api/v1/users")) });
  const reset = useMutation({
    mutationFn: async (account: Account) => {
      const path = { user_id: account.id };
      const made = await unwrap(api.POST("/api/v1/users/{user_id}/password-reset", { params: { path } }));
      return { email: account.email, link: made.link };
    },
  });
  return (
    <Card title="Users of this server">
      <ErrorNote error={users.error ?? reset.error} />
      {reset.data && (
        <div role="status" className="mb-3 space-y-2 rounded-md bg-good-soft p-3">
          <p className="text-good">
            Send this link only to {reset.data.email}. It is shown once and works once, within a day. The old password
            works until then.
          </p>
          <Code label="Reset link" text={reset.data.link} />
        </div>
      )}
      {users.data && (
        <Table
          label="Users"
          rows={users.data.items}
          keyOf={(one) => one.id}
          columns={[
            { title: "User", cell: (one) => <Person account={one} isMe={one.id === meId} /> },
            { title: "Created", cell: (one) => <RelativeTime time={one.created_at} /> },
            {
              title: "Actions",
              isRight: true,
              cell: (one) =>
                one.id !== meId && <Actions account={one} onReset={() => reset.mutate(one)} isBusy={reset.isPending} />,
            },
          ]}
        />
      )}
    </Card>
  );
}

function Person({ account, isMe }: { account: Account; isMe: boolean }) {
  return (
    <>
      <span className="font-medium">{account.full_name ?? account.email}</span>{" "}
      {isMe && <Badge tone="accent">you</Badge>} {account.is_administrator && <Badge>administrator</Badge>}{" "}
      {account.is_disabled && <Badge tone="warn">disabled</Badge>}
      {account.full_name && <span className="block text-xs text-muted">{account.email}</span>}
    </>
  );
}

function Actions({ account, onReset, isBusy }: { account: Account; onReset: () => void; isBusy: boolean }) {
  const refetch = useRefetch(KEY);
  async function change(body: Schema["AccountUpdate"]) {
    const path = { user_id: account.id };
    await unwrap(api.PATCH("/api/v1/users/{user_id}", { params: { path }, body }));
    await refetch();
  }
  const enable = useMutation({ mutationFn: () => change({ is_disabled: false }) });
  if (account.is_disabled) {
    return (
      <>
        <Button small aria-label={`Enable ${account.email}`} busy={enable.isPending} onClick={() => enable.mutate()}>
          Enable
        </Button>
        <ErrorNote error={enable.error} />
      </>
    );
  }
  return (
    <div className="flex flex-wrap justify-end gap-2">
      <Button small aria-label={`Reset password of ${account.email}`} busy={isBusy} onClick={onReset}>
        Reset password
      </Button>
      <ConfirmButton
        label={
          account.is_administrator ? `End administration: ${account.email}` : `Make administrator: ${account.email}`
        }
        consequence={
          account.is_administrator
            ? "This person can no longer manage the accounts of this server."
            : "This person can then disable accounts and reset passwords, also yours."
        }
        act={() => change({ is_administrator: !account.is_administrator })}
      >
        {account.is_administrator ? "End administration" : "Make administrator"}
      </ConfirmButton>
      <ConfirmButton
        label={`Disable ${account.email}`}
        consequence="This person's logins and API keys end at once and for good, and their runs before the next step. They can log in again when you enable the account."
        act={() => change({ is_disabled: true })}
      >
        Disable
      </ConfirmButton>
    </div>
  );
}
