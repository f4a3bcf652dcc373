import { useQuery } from "@tanstack/react-query";
import { api, type Schema, unwrap } from "../../api/client";
import { Badge } from "../../components/Badge";
import { Card } from "../../components/Card";
import { ConfirmButton } from "../../components/ConfirmButton";
import { ErrorNote } from "../../components/ErrorNote";
import { RelativeTime } from "../../components/RelativeTime";
import { Table } from "../../components/Table";
import { useRefetch } from "./data";

const KEY = ["logins"];

/** Where the user is logged in. */
export function LoginsCard() {
  const logins = useQuery({ queryKey: KEY, queryFn: () => unwrap(api.GET("/api/v1/auth/logins")) });
  const refetch = useRefetch(KEY);
  const items = logins.data?.items ?? [];
  return (
    <Card
      title="Logins"
      aside={
        items.some((one) => !one.is_current) && (
          <ConfirmButton
            label="Log out everywhere else"
            consequence="All other browsers and programs that are logged in as you must log in again."
            act={async () => {
              await unwrap(api.DELETE("/api/v1/auth/logins"));
              await refetch();
            }}
          />
        )
      }
    >
      <ErrorNote error={logins.error} />
      {logins.data && items.length === 0 && <p className="text-muted">No browser or program is logged in as you.</p>}
      {items.length > 0 && (
        <Table
          label="Logins"
          rows={items}
          keyOf={(one) => one.id}
          columns={[
            { title: "Device", cell: (one) => <Device login={one} /> },
            { title: "Address", cell: (one) => one.address },
            { title: "Last used", cell: (one) => <RelativeTime time={one.last_used_at} /> },
            { title: "Logged in", cell: (one) => <RelativeTime time={one.created_at} /> },
            {
              title: "Log out",
              isRight: true,
              cell: (one) =>
                !one.is_current && (
                  <ConfirmButton
                    label={`Log out ${nameOf(one)}`}
                    consequence="This login ends at once."
                    act={async () => {
                      const path = { login_id: one.id };
                      await unwrap(api.DELETE("/api/v1/auth/logins/{login_id}", { params: { path } }));
                      await refetch();
                    }}
                  >
                    Log out
                  </ConfirmButton>
                ),
            },
          ]}
        />
      )}
    </Card>
  );
}

function Device({ login }: { login: Schema["LoginOut"] }) {
  return (
    <span title={login.client}>
      {nameOf(login)} {login.is_current && <Badge tone="accent">this one</Badge>}
    </span>
  );
}

const BROWSERS: readonly [RegExp, string][] = [
  [/Firefox\//, "Firefox"],
  [/Edg\//, "Edge"],
  [/OPR\//, "Opera"],
  [/Chrome\//, "Chrome"],
  [/Safari\//, "Safari"],
];
const SYSTEMS: readonly [RegExp, string][] = [
  [/Android/, "Android"],
  [/iPhone|iPad/, "iOS"],
  [/Windows/, "Windows"],
  [/Mac OS X/, "macOS"],
  [/Linux/, "Linux"],
];

/** Returns a short name of a browser; the first word of what a program calls itself. */
function nameOf({ client }: Schema["LoginOut"]): string {
  const browser = BROWSERS.find(([pattern]) => pattern.test(client))?.[1];
  const system = SYSTEMS.find(([pattern]) => pattern.test(client))?.[1];
  if (browser !== undefined) return system === undefined ? browser : `${browser} on ${system}`;
  return client.split(" ")[0] || "unknown program";
}
