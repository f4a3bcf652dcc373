/** What a review is about: the open changes of a session, a run, or a call that waits for an approval. */
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useMemo, useState } from "react";
import { api, type Schema, unwrap } from "../../api/client";
import { asText } from "../../api/content";
import { nameOfAuthor, useNames } from "../../api/names";
import { callTool } from "../../api/tools";
import { useMe } from "../../app/me";
import { pausedCallKey, usePausedCall } from "../../approvals/pausedCalls";
import { useLive } from "../../events/LiveProvider";
import type { Change } from "../../events/messages";
import { inOrder } from "./fileTree";
import {
  fileOfApproval,
  fileOfRun,
  fileOfSession,
  isAsShown,
  type ReviewFile,
  withLoaded,
  withLoadedLines,
  withMoreDiff,
  withMoreHunks,
} from "./reviewFiles";

const MOST_FILES = 500;
/** Enough for every file that has a diff. */
export const MOST_LINES = 1_000_000;

/** What a person decides: about files, or about all of a review, with the files that it showed. */
export type ReviewDecision =
  | { decisions: Schema["FileDecisionIn"][] }
  | { all: "keep" | "revert"; version: string; shown: readonly ReviewFile[] };

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
    queryFn: async () => {
      const review = await wholeReview(workspaceId, sessionId);
      const before = queries.getQueryData<Schema["ReviewOut"]>(reviewKey(workspaceId, sessionId));
      return before === undefined ? review : withLoadedLines(review, before);
    },
  });
}

function reviewPage(
  workspaceId: string,
  sessionId: string,
  query: { path?: string; from_line?: number; offset?: number },
) {
  return unwrap(
    api.GET("/api/v1/workspaces/{workspace_id}/sessions/{session_id}/review", {
      params: { path: { workspace_id: workspaceId, session_id: sessionId }, query },
    }),
  );
}

/** Returns the review with the files of all pages. A decision about all names the version of the first page. */
async function wholeReview(workspaceId: string, sessionId: string): Promise<Schema["ReviewOut"]> {
  const first = await reviewPage(workspaceId, sessionId, {});
  const files = [...first.files];
  for (let offset = first.next_offset; offset !== null; ) {
    const page = await reviewPage(workspaceId, sessionId, { offset });
    files.push(...page.files);
    offset = page.next_offset;
  }
  return { ...first, files };
}

/** Loads the next lines of a file's change into the review. */
export function useMoreLines(workspaceId: string, sessionId: string): (file: ReviewFile) => Promise<void> {
  const queries = useQueryClient();
  return async ({ path, version, rest }) => {
    if (rest === null) return;
    const page = await reviewPage(workspaceId, sessionId, { path, from_line: rest.from });
    const more = page.files[0];
    if (more === undefined || more.version !== version) throw new Error("The file has changed since. Reload the page.");
    queries.setQueryData<Schema["ReviewOut"]>(reviewKey(workspaceId, sessionId), (review) =>
      review === undefined
        ? review
        : {
            ...review,
            files: review.files.map((one) => (one.path === path ? withMoreLines(one, more, rest.from) : one)),
          },
    );
  };
}

function withMoreLines(
  file: Schema["ReviewFileOut"],
  more: Schema["ReviewFileOut"],
  from: number,
): Schema["ReviewFileOut"] {
  // Reloaded meanwhile.
  if (file.version !== more.version || file.next_line !== from) return file;
  return { ...file, flaw: more.flaw, hunks: withMoreHunks(file.hunks, more.hunks), next_line: more.next_line };
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

/**
 * Decides, one decision after the other. What is decided leaves the page at once, and comes back if the server refuses.
 * `onDecided` is called for each, also where the next one was made before its answer.
 */
export function useDecideReview(
  workspaceId: string,
  sessionId: string,
  onDecided: (decided: Schema["ReviewDecisionOut"]) => void,
) {
  const queries = useQueryClient();
  const queryKey = reviewKey(workspaceId, sessionId);
  return useMutation({
    scope: { id: queryKey.join(" ") },
    onMutate: async (decision: ReviewDecision) => {
      await queries.cancelQueries({ queryKey });
      const before = queries.getQueryData<Schema["ReviewOut"]>(queryKey);
      if (before !== undefined) queries.setQueryData(queryKey, withoutDecided(before, decision));
      return { before };
    },
    onError: (_, __, context) => context?.before !== undefined && queries.setQueryData(queryKey, context.before),
    mutationFn: async (decision: ReviewDecision) =>
      unwrap(
        api.POST("/api/v1/workspaces/{workspace_id}/sessions/{session_id}/review", {
          params: { path: { workspace_id: workspaceId, session_id: sessionId } },
          body: await bodyOf(workspaceId, sessionId, decision),
        }),
      ),
    onSuccess: onDecided,
    onSettled: () => queries.invalidateQueries({ queryKey }),
  });
}

async function bodyOf(
  workspaceId: string,
  sessionId: string,
  decision: ReviewDecision,
): Promise<Schema["ReviewDecisionIn"]> {
  if ("decisions" in decision) return { decisions: decision.decisions, all: null, unshown: [], left_out: 0 };
  const { all, version, shown } = decision;
  // A decision of this page a moment ago gave the review another version, in which there is nothing new.
  const now = await wholeReview(workspaceId, sessionId);
  // All pages were read. Files that could not be shown are not named here, so that they are kept one by one.
  const rest = { decisions: [], all, unshown: [], left_out: now.left_out };
  return { ...rest, version: isAsShown(now.files, shown) ? now.version : version };
}

function withoutDecided(review: Schema["ReviewOut"], decision: ReviewDecision): Schema["ReviewOut"] {
  if (!("decisions" in decision)) return { ...review, files: [], total: 0 };
  const decided = new Set(decision.decisions.filter(({ decision }) => decision !== "edit").map(({ path }) => path));
  const files = review.files.filter(({ path }) => !decided.has(path));
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
  const proposed = approval?.changes;
  const [loaded, setLoaded] = useState<ReadonlyMap<number, Change>>(new Map());
  const changes = useMemo(() => withLoaded(proposed ?? [], loaded), [proposed, loaded]);
  const files = useMemo(() => inOrder(changes.map(fileOfApproval)), [changes]);
  /** Loads the lines of a file, or the next files. */
  async function more(file: ReviewFile): Promise<void> {
    const isOmitted = file.change === "omitted";
    const at = changes.findIndex((one) => (isOmitted ? one.change === "omitted" : one.path === file.path));
    if (at < 0 || file.rest === null) return;
    const page = await unwrap(
      api.GET("/api/v1/workspaces/{workspace_id}/paused-calls/{pause_id}/changes", {
        params: {
          path: { workspace_id: workspaceId, pause_id: pauseId },
          query: { first: at, from_line: file.rest.from },
        },
      }),
    );
    setLoaded((before) => {
      const after = new Map(before);
      // The call brings it without content that the server keeps, so no page has more of it.
      const asked = changes[at];
      if (asked !== undefined && !isOmitted) after.set(at, { ...asked, number: at });
      for (const [place, one] of (page.changes as Change[]).entries()) {
        const known = before.get(at + place);
        const goesOn = place === 0 && file.rest !== null && file.rest.from > 0 && known?.diff;
        after.set(at + place, goesOn ? { ...one, diff: withMoreDiff(known.diff ?? "", one.diff ?? "") } : one);
      }
      return after;
    });
  }
  return { found, sessionId, approval, files, more };
}

/** Reads the lines of a file as it is now. */
export async function readLines(workspaceId: string, path: string): Promise<string[]> {
  const found = await callTool(workspaceId, "read", { path, limit: MOST_LINES });
  const text = asText(found.content);
  if (text === null) throw new Error("The file has no lines.");
  return text.replace(/\n$/, "").split("\n");
}
