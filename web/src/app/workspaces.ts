/** The workspaces of the current user. */
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { api, unwrap } from "../api/client";

const KEY = ["workspaces"] as const;

export function useWorkspaces() {
  return useQuery({
    queryKey: KEY,
    queryFn: () => unwrap(api.GET("/api/v1/workspaces", { params: { query: { limit: 1000 } } })),
  });
}

export function useWorkspace(workspaceId: string) {
  return useQuery({
    queryKey: [...KEY, workspaceId],
    queryFn: () =>
      unwrap(api.GET("/api/v1/workspaces/{workspace_id}", { params: { path: { workspace_id: workspaceId } } })),
  });
}

/** Whether the person may do more than read. True until it is known, so that no control appears late. */
export function useMayWrite(workspaceId: string): boolean {
  return useWorkspace(workspaceId).data?.role !== "viewer";
}

export function useCreateWorkspace() {
  const queries = useQueryClient();
  return useMutation({
    mutationFn: (name: string) => unwrap(api.POST("/api/v1/workspaces", { body: { name } })),
    onSuccess: () => queries.invalidateQueries({ queryKey: KEY }),
  });
}
