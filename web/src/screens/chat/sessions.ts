/** Sessions over HTTP: list, create and update them, and their agents. */
import {
  keepPreviousData,
  type QueryClient,
  useInfiniteQuery,
  useMutation,
  useQuery,
  useQueryClient,
} from "@tanstack/react-query";
import { useEffect } from "react";
import { api, type Schema, unwrap } from "../../api/client";
import { useLive } from "../../events/LiveProvider";

export type Session = Schema["SessionOut"];
export type ListedSession = Schema["ListedSessionOut"];
export type FoundSession = Schema["FoundSessionOut"];
export type Agent = Schema["AgentOut"];

const listKey = (workspaceId: string) => [workspaceId, "sessions"] as const;
/** Fetches the sessions of a workspace again, and what a search found in them. */
export function forgetSessions(queries: QueryClient, workspaceId: string) {
  return queries.invalidateQueries({ queryKey: listKey(workspaceId) });
}

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
  useEffect(() => {
    let isDue = false;
    let timer: ReturnType<typeof setTimeout> | undefined;
    // Many events come at once, above all in a replay: one request is enough for them.
    const refresh = (withSession: boolean) => {
      isDue ||= withSession;
      timer ??= setTimeout(() => {
        timer = undefined;
        if (isDue) void queries.invalidateQueries({ queryKey: sessionKey(workspaceId, sessionId) });
        isDue = false;
        void forgetSessions(queries, workspaceId);
      }, 300);
    };
    const stop = live.listen(({ type, payload }) => {
      // An accepted plan ends plan mode, and the first message gives the session its title.
      const isPlan = type === "chat:tool-result" && payload.toolName === "exit_plan_mode";
      const isMessage = type === "chat:message" && payload.role === "user";
      // The list shows what a session does, and what it has cost.
      if (isPlan || isMessage || type === "chat:run-state")
        refresh(isPlan || (isMessage && isUntitled(queries, workspaceId, sessionId)));
    });
    return () => {
      stop();
      clearTimeout(timer);
    };
  }, [live, queries, workspaceId, sessionId]);
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

function isUntitled(queries: QueryClient, workspaceId: string, sessionId: string): boolean {
  return queries.getQueryData<Session>(sessionKey(workspaceId, sessionId))?.title == null;
}

/** Returns the sessions whose title or messages have words that begin so. */
export function useFoundSessions(workspaceId: string, query: string) {
  return useQuery({
    queryKey: [...listKey(workspaceId), "search", query],
    queryFn: () =>
      unwrap(
        api.GET("/api/v1/workspaces/{workspace_id}/sessions/search", {
          params: { path: { workspace_id: workspaceId }, query: { query } },
        }),
      ),
    enabled: query !== "",
    // What was found stays while the next letter is searched for.
    placeholderData: keepPreviousData,
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
