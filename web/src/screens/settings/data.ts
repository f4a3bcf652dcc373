/** Queries that several sections share. */
import { type QueryKey, useQuery, useQueryClient } from "@tanstack/react-query";
import { api, unwrap } from "../../api/client";
import { useWorkspace } from "../../app/workspaces";

export function useIsOwner(workspaceId: string): boolean {
  return useWorkspace(workspaceId).data?.role === "owner";
}

export function useMembers(workspaceId: string) {
  return useQuery({
    queryKey: [workspaceId, "members"],
    queryFn: () =>
      unwrap(api.GET("/api/v1/workspaces/{workspace_id}/members", { params: { path: { workspace_id: workspaceId } } })),
  });
}

export function useAgents(workspaceId: string) {
  return useQuery({
    queryKey: [workspaceId, "agents"],
    queryFn: () =>
      unwrap(api.GET("/api/v1/workspaces/{workspace_id}/agents", { params: { path: { workspace_id: workspaceId } } })),
  });
}

export function useKeys() {
  return useQuery({ queryKey: ["keys"], queryFn: () => unwrap(api.GET("/api/v1/api-keys")) });
}

/** Returns a function that invalidates a query. */
export function useRefetch(queryKey: QueryKey): () => Promise<void> {
  const queries = useQueryClient();
  return () => queries.invalidateQueries({ queryKey });
}
