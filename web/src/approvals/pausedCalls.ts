/** Paused calls over HTTP: pending ones of a workspace, one with full diffs, decisions and answers. */
import { useMutation, useQueries, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, type Schema, unwrap } from "../api/client";
import { type Approval, isDecidedByOther, type Pause } from "../events/conversation";
import type { Change, Effects, Item, Rule } from "../events/messages";

const pendingKey = (workspaceId: string) => [workspaceId, "pending"] as const;

export const pausedCallKey = (workspaceId: string, pauseId: string) => [workspaceId, "paused call", pauseId] as const;

/** A paused call and the session that it belongs to. */
export interface PendingCall {
  pause: Pause;
  sessionId: string | null;
  createdAt: string;
}

/** The calls of the workspace that wait for a person, oldest first. The workspace's activity says when they change. */
export function usePending(workspaceId: string) {
  return useQuery(pendingQuery(workspaceId));
}

export function pendingQuery(workspaceId: string) {
  return { queryKey: pendingKey(workspaceId), queryFn: () => fetchPending(workspaceId) };
}

async function fetchPending(workspaceId: string): Promise<PendingCall[]> {
  const params = { path: { workspace_id: workspaceId } };
  const found = await unwrap(api.GET("/api/v1/workspaces/{workspace_id}/paused-calls", { params }));
  return found.items.map((one) => ({ pause: pauseOf(one), sessionId: one.session_id, createdAt: one.created_at }));
}

/** A paused call with full diffs, for events that truncate them. */
export function useFullPause(workspaceId: string, pauseId: string, isEnabled: boolean) {
  return useQuery({ ...fullPauseQuery(workspaceId, pauseId), enabled: isEnabled });
}

export function fullPauseQuery(workspaceId: string, pauseId: string) {
  return { queryKey: [workspaceId, "pause", pauseId], queryFn: () => fetchPause(workspaceId, pauseId) };
}

/** Events carry at most 16,000 bytes of the effects, such as a long command. */
const MAY_BE_CUT = 4_000;

/** Whether an approval may lack a part of what it would do: a diff, files, or the end of its effects. */
export function mayBeCut({ changes, effects }: Approval): boolean {
  return (
    changes.some((change) => change.diff_omitted || change.change === "omitted") ||
    JSON.stringify(effects).length > MAY_BE_CUT
  );
}

async function fetchPause(workspaceId: string, pauseId: string): Promise<Pause> {
  return (await fetchPausedCall(workspaceId, pauseId)).pause;
}

/** A paused call and its session, with full diffs. */
export function usePausedCall(workspaceId: string, pauseId: string) {
  return useQuery({
    queryKey: pausedCallKey(workspaceId, pauseId),
    queryFn: () => fetchPausedCall(workspaceId, pauseId),
  });
}

async function fetchPausedCall(workspaceId: string, pauseId: string): Promise<PendingCall> {
  const path = { workspace_id: workspaceId, pause_id: pauseId };
  const found = await unwrap(
    api.GET("/api/v1/workspaces/{workspace_id}/paused-calls/{pause_id}", { params: { path } }),
  );
  return { pause: pauseOf(found), sessionId: found.session_id, createdAt: found.created_at };
}

/** Calls that were pending on this screen, and that somebody else has decided or answered since. */
export function useDecidedByOthers(workspaceId: string, pending: readonly PendingCall[], me: string | null): Pause[] {
  const [seen, setSeen] = useState<readonly string[]>([]);
  const ids = pending.map(({ pause }) => pause.id);
  const fresh = ids.filter((id) => !seen.includes(id));
  if (fresh.length > 0) setSeen([...seen, ...fresh]);
  return useQueries({
    queries: seen
      .filter((id) => !ids.includes(id))
      .map((id) => ({
        queryKey: [workspaceId, "ended pause", id],
        queryFn: () => fetchPause(workspaceId, id),
        staleTime: Number.POSITIVE_INFINITY,
      })),
    combine: (found) => found.flatMap(({ data }) => (data && isDecidedByOther(data, me) ? [data] : [])),
  });
}

/** Says who was faster, and when. */
export function alreadyDecided(pause: Pause): string {
  return `Already ${decidedText(pause)}.`;
}

/** Says what was decided by whom, and when: `approved by ada@example.com at 10:14:03`. */
export function decidedText({ state, decidedBy, decidedAt }: Pause): string {
  const time = decidedAt === null ? "" : ` at ${new Date(decidedAt).toLocaleTimeString()}`;
  return `${state} by ${decidedBy ?? "someone"}${time}`;
}

/** What a person made of the call, and the hash of the change set that they saw. */
export interface EditedCall {
  edits: { path: string; content: string }[];
  sha256: string;
}

/** The decision of a person. */
export interface Decision {
  approved: boolean;
  scope?: "once" | "session" | "always";
  reason?: string | null;
  /** What to save with a scope beyond `once`; by default the suggested rule. */
  rule?: Rule;
  /** Approve this instead of what was proposed. */
  edited?: EditedCall | null;
}

export function useDecide(workspaceId: string, approval: Approval) {
  const queries = useQueryClient();
  return useMutation({
    mutationFn: ({ approved, scope = "once", reason = null, rule = approval.suggestedRule, edited = null }: Decision) =>
      unwrap(
        api.POST("/api/v1/workspaces/{workspace_id}/paused-calls/{pause_id}/decision", {
          params: { path: { workspace_id: workspaceId, pause_id: approval.id } },
          body: {
            approved,
            scope,
            reason,
            rule: scope === "once" ? null : rule,
            // The server rejects the decision if the arguments have changed.
            arguments_sha256: approval.sha256,
            edits: edited?.edits ?? [],
            change_set_sha256: edited?.sha256 ?? null,
          },
        }),
      ),
    onSuccess: () => queries.invalidateQueries({ queryKey: pendingKey(workspaceId) }),
    // Without waiting for the list: the person reads at once why it failed.
    onError: () => void queries.invalidateQueries({ queryKey: pendingKey(workspaceId) }),
    onSettled: () => void queries.invalidateQueries({ queryKey: pausedCallKey(workspaceId, approval.id) }),
  });
}

export type Answers = Record<string, unknown>;

export function useAnswer(workspaceId: string, pauseId: string) {
  const queries = useQueryClient();
  return useMutation({
    mutationFn: ({ answers, answeredWithButton }: { answers: Answers; answeredWithButton: string[] }) =>
      unwrap(
        api.POST("/api/v1/workspaces/{workspace_id}/paused-calls/{pause_id}/answers", {
          params: { path: { workspace_id: workspaceId, pause_id: pauseId } },
          body: { answers, answered_with_button: answeredWithButton },
        }),
      ),
    onSuccess: () => queries.invalidateQueries({ queryKey: pendingKey(workspaceId) }),
    // Without waiting for the list: the person reads at once why it failed.
    onError: () => void queries.invalidateQueries({ queryKey: pendingKey(workspaceId) }),
  });
}

function pauseOf(response: Schema["ApprovalOut"] | Schema["QuestionPauseOut"]): Pause {
  const shared = {
    id: response.id,
    callId: response.call_id,
    expiresAt: response.expires_at,
    state: response.state,
    decidedBy: response.decided_by_name,
    decidedById: response.decided_by,
    decidedAt: response.decided_at,
  };
  if (response.kind === "question") {
    return {
      ...shared,
      kind: response.kind,
      items: response.questions as unknown as Item[],
      answers: response.answers,
    };
  }
  return {
    ...shared,
    kind: response.kind,
    tool: response.tool,
    input: response.input,
    agent: response.agent_name,
    sha256: response.arguments_sha256,
    changes: response.changes as unknown as Change[],
    effects: response.effects as unknown as Effects,
    rule: response.rule,
    reason: response.reason,
    isolation: response.isolation,
    suggestedRule: response.suggested_rule,
    otherRules: response.other_rules ?? [],
    replaces: response.replaces,
    rejectionReason: response.rejection_reason,
    scope: response.grant_scope,
    edits: response.edits ?? [],
  };
}
