import { useMutation, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { api, type Schema, unwrap } from "../../api/client";
import type { ScreenProps } from "../../app/screenProps";
import { Badge } from "../../components/Badge";
import { Button } from "../../components/Button";
import { Card } from "../../components/Card";
import { ConfirmButton } from "../../components/ConfirmButton";
import { Dialog } from "../../components/Dialog";
import { Empty } from "../../components/Empty";
import { ErrorNote } from "../../components/ErrorNote";
import { Loading } from "../../components/Loading";
import { RelativeTime } from "../../components/RelativeTime";
import { useIsOwner, useRefetch } from "./data";
import { NewMcpServerForm } from "./NewMcpServerForm";

type Server = Schema["McpServerOut"];

export function McpSection({ workspaceId }: ScreenProps) {
  const isOwner = useIsOwner(workspaceId);
  const [isAdding, setIsAdding] = useState(false);
  const servers = useQuery({
    queryKey: [workspaceId, "mcp"],
    queryFn: () =>
      unwrap(
        api.GET("/api/v1/workspaces/{workspace_id}/mcp-servers", { params: { path: { workspace_id: workspaceId } } }),
      ),
  });
  if (servers.isPending) return <Loading what="MCP servers" />;
  if (servers.error) return <ErrorNote error={servers.error} />;
  return (
    <>
      {servers.data.items.length === 0 && (
        <Empty title="No MCP servers yet">{isOwner ? "Add one below." : "An owner can add one."}</Empty>
      )}
      {servers.data.items.map((server) => (
        <ServerCard key={server.id} workspaceId={workspaceId} server={server} isOwner={isOwner} />
      ))}
      {isOwner && (
        <Button variant="primary" onClick={() => setIsAdding(true)}>
          Add server
        </Button>
      )}
      <Dialog title="Add MCP server" isOpen={isAdding} onClose={() => setIsAdding(false)}>
        <NewMcpServerForm workspaceId={workspaceId} onAdded={() => setIsAdding(false)} />
      </Dialog>
    </>
  );
}

function ServerCard({ workspaceId, server, isOwner }: { workspaceId: string; server: Server; isOwner: boolean }) {
  const tools = server.offered_tools ?? server.approved_tools;
  return (
    <Card title={server.name} aside={<State server={server} />}>
      <p className="font-mono text-xs wrap-anywhere">{server.url ?? server.command.join(" ")}</p>
      <Grants server={server} />
      {server.last_error && <p className="mt-2 text-bad">{server.last_error}</p>}
      <details className="mt-3" open={server.needs_approval}>
        <summary className="text-muted">
          {tools.length} {tools.length === 1 ? "tool" : "tools"}
          {server.offered_at && (
            <>
              , checked <RelativeTime time={server.offered_at} />
            </>
          )}
        </summary>
        <ul className="mt-2 max-h-80 space-y-2 overflow-y-auto" tabIndex={0} aria-label={`Tools of ${server.name}`}>
          {tools.map((tool) => (
            <li key={tool.name}>
              <code className="font-medium">{tool.name}</code>{" "}
              {server.changed_tools.includes(tool.name) && <Badge tone="warn">changed: disabled</Badge>}
              <p className="text-xs whitespace-pre-wrap text-muted">{tool.description}</p>
            </li>
          ))}
        </ul>
      </details>
      {isOwner && <Actions workspaceId={workspaceId} server={server} />}
    </Card>
  );
}

function Grants({ server }: { server: Server }) {
  const grants = [
    ["Secrets", server.secret_names.join(", ")],
    ["Hosts", server.hosts.join(", ")],
    ["Workspace", server.workspace_access === "none" ? "" : server.workspace_access],
  ].filter(([, value]) => value);
  return grants.map(([label, value]) => (
    <p key={label} className="mt-1 text-xs wrap-anywhere text-muted">
      {label}: {value}
    </p>
  ));
}

function State({ server }: { server: Server }) {
  if (!server.enabled) return <Badge>disabled</Badge>;
  if (server.last_error) return <Badge tone="bad">not responding</Badge>;
  if (server.needs_approval) return <Badge tone="warn">needs approval</Badge>;
  return <Badge tone="good">enabled</Badge>;
}

function Actions({ workspaceId, server }: { workspaceId: string; server: Server }) {
  const refetch = useRefetch([workspaceId, "mcp"]);
  const path = { workspace_id: workspaceId, server_id: server.id };
  const refresh = useMutation({
    mutationFn: () =>
      unwrap(api.POST("/api/v1/workspaces/{workspace_id}/mcp-servers/{server_id}/refresh", { params: { path } })),
    onSuccess: refetch,
  });
  const approve = useMutation({
    mutationFn: (sha256: string) =>
      unwrap(
        api.POST("/api/v1/workspaces/{workspace_id}/mcp-servers/{server_id}/approve", {
          params: { path },
          body: { sha256 },
        }),
      ),
    onSuccess: refetch,
  });
  const toggle = useMutation({
    mutationFn: () =>
      unwrap(
        api.PATCH("/api/v1/workspaces/{workspace_id}/mcp-servers/{server_id}", {
          params: { path },
          body: { enabled: !server.enabled },
        }),
      ),
    onSuccess: refetch,
  });
  const seen = server.offered_sha256;
  return (
    <div className="mt-4 space-y-2">
      <div className="flex flex-wrap gap-2">
        {server.needs_approval && seen && (
          <Button small variant="primary" busy={approve.isPending} onClick={() => approve.mutate(seen)}>
            Approve these tools
          </Button>
        )}
        <Button small busy={refresh.isPending} onClick={() => refresh.mutate()}>
          Refresh
        </Button>
        <Button small busy={toggle.isPending} onClick={() => toggle.mutate()}>
          {server.enabled ? "Disable" : "Enable"}
        </Button>
        <ConfirmButton
          label={`Remove ${server.name}`}
          consequence="All agents of this workspace lose its tools."
          act={async () => {
            await unwrap(api.DELETE("/api/v1/workspaces/{workspace_id}/mcp-servers/{server_id}", { params: { path } }));
            await refetch();
          }}
        />
      </div>
      <ErrorNote error={refresh.error ?? approve.error ?? toggle.error} />
    </div>
  );
}
