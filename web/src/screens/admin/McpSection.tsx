import { useMutation, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { api, type Schema, taken } from "../../api/client";
import type { ScreenProps } from "../../app/screens";
import { Ago } from "../../parts/Ago";
import { Badge } from "../../parts/Badge";
import { Button } from "../../parts/Button";
import { Card } from "../../parts/Card";
import { ConfirmButton } from "../../parts/ConfirmButton";
import { Dialog } from "../../parts/Dialog";
import { Empty } from "../../parts/Empty";
import { ErrorNote } from "../../parts/ErrorNote";
import { Loading } from "../../parts/Loading";
import { useIsOwner, useRefetch } from "./data";
import { NewMcpServerForm } from "./NewMcpServerForm";

type Server = Schema["McpServerAnswer"];

export function McpSection({ workspaceId }: ScreenProps) {
  const isOwner = useIsOwner(workspaceId);
  const [isAdding, setIsAdding] = useState(false);
  const servers = useQuery({
    queryKey: [workspaceId, "mcp"],
    queryFn: () =>
      taken(
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
        <Button look="primary" onClick={() => setIsAdding(true)}>
          Add a server
        </Button>
      )}
      <Dialog title="Add an MCP server" isOpen={isAdding} onClose={() => setIsAdding(false)}>
        <NewMcpServerForm workspaceId={workspaceId} onAdded={() => setIsAdding(false)} />
      </Dialog>
    </>
  );
}

function ServerCard({ workspaceId, server, isOwner }: { workspaceId: string; server: Server; isOwner: boolean }) {
  const tools = server.seen ?? server.approved;
  return (
    <Card title={server.name} aside={<State server={server} />}>
      <p className="font-mono text-xs wrap-anywhere">{server.url ?? server.command.join(" ")}</p>
      {server.problem && <p className="mt-2 text-bad">{server.problem}</p>}
      <details className="mt-3" open={server.awaits_approval}>
        <summary className="text-muted">
          {tools.length} {tools.length === 1 ? "tool" : "tools"}
          {server.seen_at && (
            <>
              , looked at <Ago time={server.seen_at} />
            </>
          )}
        </summary>
        <ul className="mt-2 max-h-80 space-y-2 overflow-y-auto" tabIndex={0} aria-label={`Tools of ${server.name}`}>
          {tools.map((tool) => (
            <li key={tool.name}>
              <code className="font-medium">{tool.name}</code>{" "}
              {server.changed.includes(tool.name) && <Badge tone="warn">changed: off</Badge>}
              <p className="text-xs whitespace-pre-wrap text-muted">{tool.description}</p>
            </li>
          ))}
        </ul>
      </details>
      {isOwner && <Actions workspaceId={workspaceId} server={server} />}
    </Card>
  );
}

function State({ server }: { server: Server }) {
  if (!server.enabled) return <Badge>off</Badge>;
  if (server.problem) return <Badge tone="bad">does not answer</Badge>;
  if (server.awaits_approval) return <Badge tone="warn">its list awaits you</Badge>;
  return <Badge tone="good">in use</Badge>;
}

function Actions({ workspaceId, server }: { workspaceId: string; server: Server }) {
  const refetch = useRefetch([workspaceId, "mcp"]);
  const path = { workspace_id: workspaceId, server_id: server.id };
  const look = useMutation({
    mutationFn: () =>
      taken(api.POST("/api/v1/workspaces/{workspace_id}/mcp-servers/{server_id}/look", { params: { path } })),
    onSuccess: refetch,
  });
  const accept = useMutation({
    mutationFn: (sha256: string) =>
      taken(
        api.POST("/api/v1/workspaces/{workspace_id}/mcp-servers/{server_id}/approve", {
          params: { path },
          body: { sha256 },
        }),
      ),
    onSuccess: refetch,
  });
  const toggle = useMutation({
    mutationFn: () =>
      taken(
        api.PATCH("/api/v1/workspaces/{workspace_id}/mcp-servers/{server_id}", {
          params: { path },
          body: { enabled: !server.enabled },
        }),
      ),
    onSuccess: refetch,
  });
  const seen = server.seen_sha256;
  return (
    <div className="mt-4 space-y-2">
      <div className="flex flex-wrap gap-2">
        {server.awaits_approval && seen && (
          <Button small look="primary" busy={accept.isPending} onClick={() => accept.mutate(seen)}>
            Accept this list
          </Button>
        )}
        <Button small busy={look.isPending} onClick={() => look.mutate()}>
          Look again
        </Button>
        <Button small busy={toggle.isPending} onClick={() => toggle.mutate()}>
          {server.enabled ? "Switch off" : "Switch on"}
        </Button>
        <ConfirmButton
          label={`Remove ${server.name}`}
          consequence="Its tools are gone for every agent of this workspace."
          act={async () => {
            await taken(api.DELETE("/api/v1/workspaces/{workspace_id}/mcp-servers/{server_id}", { params: { path } }));
            await refetch();
          }}
        />
      </div>
      <ErrorNote error={look.error ?? accept.error ?? toggle.error} />
    </div>
  );
}
