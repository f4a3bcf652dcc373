/** Approvals over HTTP: what waits in the whole workspace, one with its whole diffs, and deciding. */
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect } from "react";
import { api, type Schema, taken } from "../api/client";
import type { Approval } from "../events/conversation";
import { useLive } from "../events/LiveProvider";
import type { Change, Effects, Item, Rule } from "../events/wire";

/** Other sessions than the one that is watched tell nothing here, so they are asked. */
const LOOK_EVERY = 5_000;

const pendingKey = (workspaceId: string) => [workspaceId, "pending"] as const;

export interface PendingQuestion {
  id: string;
  sessionId: string | null;
  items: Item[];
  createdAt: string;
}

/** An approval and the session that it belongs to. */
export interface PendingApproval {
  approval: Approval;
  sessionId: string | null;
  createdAt: string;
}

export interface Pending {
  approvals: PendingApproval[];
  questions: PendingQuestion[];
}

/** What waits for a person anywhere in the workspace. */
export function usePending(workspaceId: string) {
  const queries = useQueryClient();
  const live = useLive();
  useEffect(
    () =>
      live.listen(({ type }) => {
        if (/^chat:(tool-confirm|tool-decided|question|answer)$/.test(type)) {
          void queries.invalidateQueries({ queryKey: pendingKey(workspaceId) });
        }
      }),
    [live, queries, workspaceId],
  );
  return useQuery({
    queryKey: pendingKey(workspaceId),
    queryFn: () => pendingOf(workspaceId),
    refetchInterval: LOOK_EVERY,
  });
}

async function pendingOf(workspaceId: string): Promise<Pending> {
  const at = { params: { path: { workspace_id: workspaceId } } };
  const [approvals, questions] = await Promise.all([
    taken(api.GET("/api/v1/workspaces/{workspace_id}/approvals", at)),
    taken(api.GET("/api/v1/workspaces/{workspace_id}/questions", at)),
  ]);
  return {
    approvals: approvals.items.map((one) => ({
      approval: approvalOf(one),
      sessionId: one.session_id,
      createdAt: one.created_at,
    })),
    questions: questions.items.map((one) => ({
      id: one.id,
      sessionId: one.session_id,
      items: one.questions as unknown as Item[],
      createdAt: one.created_at,
    })),
  };
}

/** An approval with every diff, for one whose event had no room for them. */
export function useWholeApproval(workspaceId: string, approvalId: string, isWanted: boolean) {
  return useQuery({
    queryKey: [workspaceId, "approval", approvalId],
    queryFn: async () => {
      const path = { workspace_id: workspaceId, approval_id: approvalId };
      return approvalOf(
        await taken(api.GET("/api/v1/workspaces/{workspace_id}/approvals/{approval_id}", { params: { path } })),
      );
    },
    enabled: isWanted,
  });
}

/** What a person decides. */
export interface Verdict {
  approved: boolean;
  scope?: "once" | "session" | "always";
  reason?: string | null;
}

export function useDecide(workspaceId: string, approval: Approval) {
  const queries = useQueryClient();
  return useMutation({
    mutationFn: ({ approved, scope = "once", reason = null }: Verdict) =>
      taken(
        api.POST("/api/v1/workspaces/{workspace_id}/approvals/{approval_id}/decision", {
          params: { path: { workspace_id: workspaceId, approval_id: approval.id } },
          body: {
            approved,
            scope,
            reason,
            rule: scope === "once" ? null : approval.offered,
            // The server refuses if it is not exactly this that would be done.
            arguments_sha256: approval.sha256,
          },
        }),
      ),
    onSettled: () => queries.invalidateQueries({ queryKey: pendingKey(workspaceId) }),
  });
}

function approvalOf(answer: Schema["ApprovalAnswer"]): Approval {
  return {
    id: answer.id,
    callId: answer.call_id,
    tool: answer.tool,
    input: answer.shown,
    agent: answer.agent_name,
    sha256: answer.arguments_sha256,
    changes: answer.changes as unknown as Change[],
    effects: answer.effects as unknown as Effects,
    rule: answer.rule,
    reason: answer.reason,
    isolation: answer.isolation,
    offered: answer.offered as Rule,
    replaces: answer.replaces,
    expiresAt: answer.expires_at,
    state: answer.state,
    decidedBy: answer.decided_by_name,
    denial: answer.denial,
    scope: answer.scope,
  };
}
