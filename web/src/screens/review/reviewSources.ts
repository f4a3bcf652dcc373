/** What a review is about: the open changes of a session, a run, or a call that waits for an approval. */
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useMemo } from "react";
import { api, type Schema, unwrap } from "../../api/client";
import { asText } from "../../api/content";
import { nameOfAuthor, useNames } from "../../api/names";
import { callTool } from "../../api/tools";
import { useMe } from "../../app/me";
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

export function useFilesOfSession(workspaceId: string, review: Schema["ReviewOut"] | undefined): ReviewFile[] {
  const names = useNames(workspaceId);
  const me = useMe().data?.id;
  return useMemo(() => {
    const nameOf = (author: Schema["OtherAuthorOut"]) =>
      author.user_id !== null && author.user_id === me && author.agent_id === null
        ? "you"
        : nameOfAuthor(names, author);
    return inOrder(review?.files.map((one) => fileOfSession(one, nameOf)) ?? []);
  }, [review, names, me]);
}

/** Decides. What is decided leaves the page at once, and comes back if the server refuses. */
export function useDecideReview(workspaceId: string, sessionId: string) {
  const queries = useQueryClient();
  const queryKey = reviewKey(workspaceId, sessionId);
  return useMutation({
    onMutate: async (body: ReviewDecision) => {
      await queries.cancelQueries({ queryKey });
      const before = queries.getQueryData<Schema["ReviewOut"]>(queryKey);
      if (before !== undefined) queries.setQueryData(queryKey, withoutDecided(before, body));
      return { before };
    },
    onError: (_, __, context) => context?.before !== undefined && queries.setQueryData(queryKey, context.before),
    mutationFn: (body: ReviewDecision) =>
      unwrap(
        api.POST("/api/v1/workspaces/{workspace_id}/sessions/{session_id}/review", {
          params: { path: { workspace_id: workspaceId, session_id: sessionId } },
          body,
        }),
      ),
    onSettled: () => queries.invalidateQueries({ queryKey }),
  });
}

function withoutDecided(review: Schema["ReviewOut"], { all, decisions }: ReviewDecision): Schema["ReviewOut"] {
  const decided = new Set(decisions.filter(({ decision }) => decision !== "edit").map(({ path }) => path));
  const files = all === null ? review.files.filter(({ path }) => !decided.has(path)) : [];
  return { ...review, files, total: files.length };
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
