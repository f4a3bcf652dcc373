/** Queries of the History screen. */
import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { api, type Schema, unwrap } from "../../api/client";

export type Session = Schema["SessionOut"];
export type AuditRecord = Schema["AuditRecordOut"];

const key = (workspaceId: string, ...rest: unknown[]) => ["history", workspaceId, ...rest] as const;

export function useSessions(workspaceId: string) {
  return useQuery({
    queryKey: key(workspaceId, "sessions"),
    queryFn: () =>
      unwrap(
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
      unwrap(
        api.GET("/api/v1/workspaces/{workspace_id}/sessions/{session_id}/runs", {
          params: {
            path: { workspace_id: workspaceId, session_id: sessionId },
            query: { limit: 50, ...before(pageParam) },
          },
        }),
      ),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.next,
  });
}

export function useCalls(workspaceId: string, sessionId: string) {
  return useInfiniteQuery({
    queryKey: key(workspaceId, "calls", sessionId),
    queryFn: ({ pageParam }) =>
      unwrap(
        api.GET("/api/v1/workspaces/{workspace_id}/sessions/{session_id}/calls", {
          params: {
            path: { workspace_id: workspaceId, session_id: sessionId },
            query: { limit: 200, ...before(pageParam) },
          },
        }),
      ),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.next,
  });
}

function before(page: string | null): { before?: string } {
  return page === null ? {} : { before: page };
}

export interface Filters {
  /** `user:<id>` or `agent:<id>`; empty for everyone. */
  who: string;
  tool: string;
  outcome: "" | AuditRecord["outcome"];
  /** Values of `datetime-local` inputs: local time, without a zone. */
  since: string;
  until: string;
}

export function useAuditLog(workspaceId: string, filters: Filters) {
  return useInfiniteQuery({
    queryKey: key(workspaceId, "audit-log", filters),
    queryFn: ({ pageParam }) =>
      unwrap(
        api.GET("/api/v1/workspaces/{workspace_id}/audit", {
          params: {
            path: { workspace_id: workspaceId },
            query: { limit: 100, ...auditQuery(filters), ...(pageParam === null ? {} : { before: Number(pageParam) }) },
          },
        }),
      ),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.next,
  });
}

function auditQuery({ who, tool, outcome, since, until }: Filters) {
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

export interface VerificationProgress {
  /** Checked seals, and the number of the newest one. */
  seals: number;
  newest: number;
  records: number;
  unsealed: number;
  problems: string[];
  isDone: boolean;
}

/** Verifies the audit log in parts and reports progress after each. The signal aborts it. */
export async function verifyAuditLog(
  workspaceId: string,
  onProgress: (progress: VerificationProgress) => void,
  signal: AbortSignal,
): Promise<void> {
  let progress: VerificationProgress = { seals: 0, newest: 0, records: 0, unsealed: 0, problems: [], isDone: false };
  while (!progress.isDone && !signal.aborted) {
    const part = await unwrap(
      api.GET("/api/v1/workspaces/{workspace_id}/audit/verification", {
        params: { path: { workspace_id: workspaceId }, query: { after: progress.seals } },
        signal,
      }),
    );
    const isStuck = part.verified_to <= progress.seals;
    progress = {
      seals: part.verified_to,
      newest: part.last_seal,
      records: progress.records + part.sealed_records,
      unsealed: part.unsealed_records,
      problems: [...progress.problems, ...part.problems],
      isDone: isStuck || part.verified_to >= part.last_seal,
    };
    onProgress(progress);
  }
}
