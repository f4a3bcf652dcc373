/** Leads an owner to the first steps, until the workspace has an agent that can answer. */
import { useQuery } from "@tanstack/react-query";
import { Link } from "wouter";
import { api, unwrap } from "../api/client";
import { START } from "./screens";
import { useWorkspace } from "./workspaces";

export function StartLink({ workspaceId }: { workspaceId: string }) {
  const isOwner = useWorkspace(workspaceId).data?.role === "owner";
  const agents = useQuery({
    queryKey: [workspaceId, "agents"],
    queryFn: () =>
      unwrap(api.GET("/api/v1/workspaces/{workspace_id}/agents", { params: { path: { workspace_id: workspaceId } } })),
  });
  if (!isOwner || !agents.data || agents.data.items.some(({ rules }) => rules.model)) return null;
  const Icon = START.icon;
  return (
    <Link
      href={`/w/${workspaceId}/${START.name}`}
      className="inline-flex min-h-9 items-center gap-2 rounded-md bg-accent-soft px-3 text-sm font-medium text-accent hover:bg-accent hover:text-on-accent"
    >
      <Icon aria-hidden className="size-4" /> {START.label}
    </Link>
  );
}
