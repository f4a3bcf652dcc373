/** What a review is about: the open changes of a session, a run, or a call that waits for an approval. */
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useMemo } from "react";
import { api, type Schema, unwrap } from "../../api/client";
import { asText } from "../../api/content";
import { callTool } from "../../api/tools";
import { pausedCallKey, usePausedCall } from "../../approvals/pausedCalls";
import { useLive } from "../../events/LiveProvider";
import { inOrder } from "./fileTree";
import { fileOfApproval, fileOfRun, fileOfSession, type ReviewFile } from "./reviewFiles";

const MOST_FILES = 500;
/** Enough for every file that has a diff. */
export const MOST_LINES = 1_000_000;

export type ReviewDecision = Schema["ReviewDecisionIn"];

export const reviewKey = (workspaceId: string, sessionId: string) => [workspaceId, "review", sessionId] as const;

/** The open review of a session. It follows the agent's work. */
export function useSessionReview(workspaceId: string, sessionId: string) {
  const queries = useQueryClient();
  const live = useLive();
  useEffect(() => live.subscribe(sessionId), [live, sessionId]);
  useEffect(
    () =>
      live.listen(({ type }) => {
        if (type === "chat:review") {
          void queries.invalidateQueries({ queryKey: reviewKey(workspaceId, sessionId) });
        }
      }),
    [live, queries, workspaceId, sessionId],
  );
  return useQuery({
    queryKey: reviewKey(workspaceId, sessionId),
    queryFn: () =>
      unwrap(
        api.GET("/api/v1/workspaces/{workspace_id}/sessions/{session_id}/review", {
          params: { path: { workspace_id: workspaceId, session_id: sessionId } },
        }),
      ),
  });
}

export function useFilesOfSession(review: Schema["ReviewOut"] | undefined): ReviewFile[] {
  return useMemo(() => inOrder(review?.files.map(fileOfSession) ?? []), [review]);
}

export function useDecideReview(workspaceId: string, sessionId: string) {
  const queries = useQueryClient();
  return useMutation({
    mutationFn: (body: ReviewDecision) =>
      unwrap(
        api.POST("/api/v1/workspaces/{workspace_id}/sessions/{session_id}/review", {
          params: { path: { workspace_id: workspaceId, session_id: sessionId } },
          body,
        }),
      ),
    onSettled: () => queries.invalidateQueries({ queryKey: reviewKey(workspaceId, sessionId) }),
  });
}

/** The files that a run changed. */
export function useRunChanges(workspaceId: string, runId: string) {
  const run = useQuery({
    queryKey: [workspaceId, "run", runId],
    queryFn: () =>
      unwrap(
        api.GET("/api/v1/workspaces/{workspace_id}/runs/{run_id}", {
          params: { path: { workspace_id: workspaceId, run_id: runId } },
        }),
      ),
  });
  const changes = useQuery({
    queryKey: ["files", workspaceId, "changes", { run_id: runId }],
    queryFn: () => callTool(workspaceId, "changes", { run_id: runId, limit: MOST_FILES }),
  });
  const files = useMemo(() => inOrder(changes.data?.changes.map(fileOfRun) ?? []), [changes.data]);
  return { run, changes, files };
}

/** A call that waits for an approval, with its whole diffs. */
export function useApproval(workspaceId: string, pauseId: string) {
  const live = useLive();
  const queries = useQueryClient();
  const found = usePausedCall(workspaceId, pauseId);
  const sessionId = found.data?.sessionId ?? null;
  useEffect(() => (sessionId === null ? undefined : live.subscribe(sessionId)), [live, sessionId]);
  useEffect(
    () =>
      live.listen(({ type }) => {
        if (type === "chat:pause-ended") {
          void queries.invalidateQueries({ queryKey: pausedCallKey(workspaceId, pauseId) });
        }
      }),
    [live, queries, workspaceId, pauseId],
  );
  const pause = found.data?.pause;
  const approval = pause?.kind === "approval" ? pause : null;
  const changes = approval?.changes;
  const files = useMemo(() => inOrder(changes?.map(fileOfApproval) ?? []), [changes]);
  return { found, sessionId, approval, files };
}

/** Reads the lines of a file as it is now. */
export async function readLines(workspaceId: string, path: string): Promise<string[]> {
  const found = await callTool(workspaceId, "read", { path, limit: MOST_LINES });
  const text = asText(found.content);
  if (text === null) throw new Error("The file has no lines.");
  return text.replace(/\n$/, "").split("\n");
}
