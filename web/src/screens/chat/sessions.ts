/** Sessions over HTTP: list, create and update them, and their agents. */
import { useInfiniteQuery, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect } from "react";
import { api, type Schema, unwrap } from "../../api/client";
import { useLive } from "../../events/LiveProvider";

export type Session = Schema["SessionOut"];
export type Agent = Schema["AgentOut"];

const listKey = (workspaceId: string) => [workspaceId, "sessions"] as const;
const sessionKey = (workspaceId: string, sessionId: string) => [workspaceId, "session", sessionId] as const;

export function useSessions(workspaceId: string) {
  return useInfiniteQuery({
    queryKey: listKey(workspaceId),
    initialPageParam: undefined as string | undefined,
    queryFn: ({ pageParam }) =>
      unwrap(
        api.GET("/api/v1/workspaces/{workspace_id}/sessions", {
          params: { path: { workspace_id: workspaceId }, query: pageParam ? { before: pageParam } : {} },
        }),
      ),
    getNextPageParam: (page) => page.next ?? undefined,
  });
}

export function useSession(workspaceId: string, sessionId: string) {
  const queries = useQueryClient();
  const live = useLive();
  useEffect(
    () =>
      live.listen(({ type, payload }) => {
        // An accepted plan ends plan mode.
        if (type === "chat:tool-result" && payload.toolName === "exit_plan_mode") {
          void queries.invalidateQueries({ queryKey: sessionKey(workspaceId, sessionId) });
          void queries.invalidateQueries({ queryKey: listKey(workspaceId) });
        }
      }),
    [live, queries, workspaceId, sessionId],
  );
  return useQuery({
    queryKey: sessionKey(workspaceId, sessionId),
    queryFn: () =>
      unwrap(
        api.GET("/api/v1/workspaces/{workspace_id}/sessions/{session_id}", {
          params: { path: { workspace_id: workspaceId, session_id: sessionId } },
        }),
      ),
  });
}

export function useCreateSession(workspaceId: string) {
  const queries = useQueryClient();
  return useMutation({
    mutationFn: (body: Schema["SessionCreate"]) =>
      unwrap(
        api.POST("/api/v1/workspaces/{workspace_id}/sessions", {
          params: { path: { workspace_id: workspaceId } },
          body,
        }),
      ),
    onSuccess: () => queries.invalidateQueries({ queryKey: listKey(workspaceId) }),
  });
}

export function useUpdateSession(workspaceId: string, sessionId: string) {
  const queries = useQueryClient();
  return useMutation({
    mutationFn: (body: Schema["SessionUpdate"]) =>
      unwrap(
        api.PATCH("/api/v1/workspaces/{workspace_id}/sessions/{session_id}", {
          params: { path: { workspace_id: workspaceId, session_id: sessionId } },
          body,
        }),
      ),
    onSuccess: (session) => {
      queries.setQueryData(sessionKey(workspaceId, sessionId), session);
      void queries.invalidateQueries({ queryKey: listKey(workspaceId) });
    },
  });
}

export function useAgents(workspaceId: string) {
  return useQuery({
    queryKey: ["agents", workspaceId],
    queryFn: () =>
      unwrap(api.GET("/api/v1/workspaces/{workspace_id}/agents", { params: { path: { workspace_id: workspaceId } } })),
    // The agent may be new.
    staleTime: 0,
  });
}

/** Returns the model of an agent as its provider describes it, if available. */
export function useModel(agent: Agent | undefined) {
  const { provider, model } = agent?.rules ?? {};
  const models = useQuery({
    queryKey: ["models", provider],
    queryFn: () =>
      unwrap(api.GET("/api/v1/providers/{provider}/models", { params: { path: { provider: provider ?? "" } } })),
    enabled: Boolean(provider),
    staleTime: 5 * 60_000,
    retry: false,
  });
  return models.data?.items.find((one) => one.id === model);
}
