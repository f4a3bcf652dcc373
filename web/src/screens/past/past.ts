/** What the Past screen asks of the server. */
import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { api, type Schema, taken } from "../../api/client";

export type Session = Schema["SessionAnswer"];
export type AuditRecord = Schema["RecordAnswer"];

const key = (workspaceId: string, ...rest: unknown[]) => ["past", workspaceId, ...rest] as const;

export function useSessions(workspaceId: string) {
  return useQuery({
    queryKey: key(workspaceId, "sessions"),
    queryFn: () =>
      taken(
        api.GET("/api/v1/workspaces/{workspace_id}/sessions", {
          params: { path: { workspace_id: workspaceId }, query: { limit: 200 } },
        }),
      ),
  });
}

export function useRuns(workspaceId: string, sessionId: string) {
  return useInfiniteQuery({
    queryKey: key(workspaceId, "runs", sessionId),
    queryFn: ({ pageParam }) =>
      taken(
        api.GET("/api/v1/workspaces/{workspace_id}/sessions/{session_id}/runs", {
          params: {
            path: { workspace_id: workspaceId, session_id: sessionId },
            query: { limit: 50, ...before(pageParam) },
          },
        }),
      ),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.next,
    refetchInterval: ({ state }) => whileGoingOn(state.data?.pages[0]?.items.some((run) => run.state !== "ended")),
  });
}

export function useCalls(workspaceId: string, sessionId: string) {
  return useInfiniteQuery({
    queryKey: key(workspaceId, "calls", sessionId),
    queryFn: ({ pageParam }) =>
      taken(
        api.GET("/api/v1/workspaces/{workspace_id}/sessions/{session_id}/calls", {
          params: {
            path: { workspace_id: workspaceId, session_id: sessionId },
            query: { limit: 200, ...before(pageParam) },
          },
        }),
      ),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.next,
    refetchInterval: ({ state }) => whileGoingOn(state.data?.pages[0]?.items.some(isGoingOn)),
  });
}

function isGoingOn(call: Schema["PastCallAnswer"]): boolean {
  return call.state === "running" || call.state === "waiting";
}

/** What goes on is looked at again every few seconds; what is over does not change by itself. */
function whileGoingOn(isSo: boolean | undefined): number | false {
  return isSo ? 3_000 : false;
}

function before(page: string | null): { before?: string } {
  return page === null ? {} : { before: page };
}

export interface Filters {
  /** `user:<id>` or `agent:<id>`; empty for everyone. */
  who: string;
  tool: string;
  outcome: "" | AuditRecord["outcome"];
  /** As the browser's field tells them: local time, without a zone. */
  since: string;
  until: string;
}

export function useBook(workspaceId: string, filters: Filters) {
  return useInfiniteQuery({
    queryKey: key(workspaceId, "book", filters),
    queryFn: ({ pageParam }) =>
      taken(
        api.GET("/api/v1/workspaces/{workspace_id}/audit", {
          params: {
            path: { workspace_id: workspaceId },
            query: { limit: 100, ...asked(filters), ...(pageParam === null ? {} : { before: Number(pageParam) }) },
          },
        }),
      ),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.next,
  });
}

function asked({ who, tool, outcome, since, until }: Filters) {
  const [kind, id] = who.split(":");
  return {
    ...(kind === "user" && id ? { user_id: id } : {}),
    ...(kind === "agent" && id ? { agent_id: id } : {}),
    ...(tool.trim() === "" ? {} : { tool: tool.trim() }),
    ...(outcome === "" ? {} : { outcome }),
    ...(since === "" ? {} : { since: new Date(since).toISOString() }),
    ...(until === "" ? {} : { until: new Date(until).toISOString() }),
  };
}

export interface Verified {
  /** The seals that were looked at, of how many. */
  seals: number;
  newest: number;
  records: number;
  unsealed: number;
  problems: string[];
  isDone: boolean;
}

/** Verifies the book part by part, and tells after each how far it is. Ends early when it is told to. */
export async function verifyBook(
  workspaceId: string,
  tell: (so: Verified) => void,
  signal: AbortSignal,
): Promise<void> {
  let so: Verified = { seals: 0, newest: 0, records: 0, unsealed: 0, problems: [], isDone: false };
  while (!so.isDone && !signal.aborted) {
    const part = await taken(
      api.GET("/api/v1/workspaces/{workspace_id}/audit/verification", {
        params: { path: { workspace_id: workspaceId }, query: { after: so.seals } },
        signal,
      }),
    );
    const isStuck = part.last <= so.seals;
    so = {
      seals: part.last,
      newest: part.newest,
      records: so.records + part.sealed,
      unsealed: part.unsealed,
      problems: [...so.problems, ...part.problems],
      isDone: isStuck || part.last >= part.newest,
    };
    tell(so);
  }
}
