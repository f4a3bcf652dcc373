/** What the page of a run shows. All of it is fetched again when something happens in the workspace. */
import { useQuery } from "@tanstack/react-query";
import { api, type Schema, unwrap } from "../../api/client";
import type { Message, PausedCall, Run, RunCall } from "./runSteps";

export interface RunData {
  run: Run;
  session: Schema["SessionOut"];
  messages: Message[];
  calls: RunCall[];
  pauses: PausedCall[];
  children: Run[];
}

export function useRun(workspaceId: string, runId: string) {
  return useQuery({ queryKey: ["history", workspaceId, "run", runId], queryFn: () => fetchRun(workspaceId, runId) });
}

async function fetchRun(workspaceId: string, runId: string): Promise<RunData> {
  const path = { workspace_id: workspaceId };
  const run = await unwrap(
    api.GET("/api/v1/workspaces/{workspace_id}/runs/{run_id}", { params: { path: { ...path, run_id: runId } } }),
  );
  const ofSession = { ...path, session_id: run.session_id };
  const [session, messages, calls, pauses, children] = await Promise.all([
    unwrap(api.GET("/api/v1/workspaces/{workspace_id}/sessions/{session_id}", { params: { path: ofSession } })),
    allPages((after) =>
      unwrap(
        api.GET("/api/v1/workspaces/{workspace_id}/sessions/{session_id}/messages", {
          params: { path: ofSession, query: { run_id: runId, limit: 500, ...(after ? { after: Number(after) } : {}) } },
        }),
      ),
    ),
    allPages((before) =>
      unwrap(
        api.GET("/api/v1/workspaces/{workspace_id}/sessions/{session_id}/calls", {
          params: { path: ofSession, query: { run_id: runId, limit: 500, ...(before ? { before } : {}) } },
        }),
      ),
    ),
    allPages((after) =>
      unwrap(
        api.GET("/api/v1/workspaces/{workspace_id}/paused-calls", {
          params: {
            path,
            query: { session_id: run.session_id, state: "all", limit: 500, ...(after ? { after } : {}) },
          },
        }),
      ),
    ),
    unwrap(
      api.GET("/api/v1/workspaces/{workspace_id}/runs", {
        params: { path, query: { parent_run_id: runId, limit: 200 } },
      }),
    ),
  ]);
  return {
    run,
    session,
    messages,
    calls,
    pauses: pauses.filter((pause) => pause.run_id === runId),
    children: children.items,
  };
}

async function allPages<T>(fetchPage: (next: string | null) => Promise<{ items: T[]; next?: string | null }>) {
  const items: T[] = [];
  let next: string | null = null;
  do {
    const page: { items: T[]; next?: string | null } = await fetchPage(next);
    items.push(...page.items);
    next = page.next ?? null;
  } while (next !== null);
  return items;
}
