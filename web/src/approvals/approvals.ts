/** Approvals over HTTP: pending ones of a workspace, one with full diffs, and decisions. */
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect } from "react";
import { api, type Schema, unwrap } from "../api/client";
import type { Approval } from "../events/conversation";
import { useLive } from "../events/LiveProvider";
import type { Change, Effects, Item, Rule } from "../events/messages";

/** Events arrive only for the open session, so others are polled. */
const REFETCH_INTERVAL = 5_000;

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

/** Pending approvals and questions of the workspace. */
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
    queryFn: () => fetchPending(workspaceId),
    refetchInterval: REFETCH_INTERVAL,
  });
}

async function fetchPending(workspaceId: string): Promise<Pending> {
  const at = { params: { path: { workspace_id: workspaceId } } };
  const [approvals, questions] = await Promise.all([
    unwrap(api.GET("/api/v1/workspaces/{workspace_id}/approvals", at)),
    unwrap(api.GET("/api/v1/workspaces/{workspace_id}/questions", at)),
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

/** An approval with full diffs, for events that truncate them. */
export function useFullApproval(workspaceId: string, approvalId: string, isEnabled: boolean) {
  return useQuery({
    queryKey: [workspaceId, "approval", approvalId],
    queryFn: async () => {
      const path = { workspace_id: workspaceId, approval_id: approvalId };
      return approvalOf(
        await unwrap(api.GET("/api/v1/workspaces/{workspace_id}/approvals/{approval_id}", { params: { path } })),
      );
    },
    enabled: isEnabled,
  });
}

/** The decision of a person. */
export interface Decision {
  approved: boolean;
  scope?: "once" | "session" | "always";
  reason?: string | null;
}

export function useDecide(workspaceId: string, approval: Approval) {
  const queries = useQueryClient();
  return useMutation({
    mutationFn: ({ approved, scope = "once", reason = null }: Decision) =>
      unwrap(
        api.POST("/api/v1/workspaces/{workspace_id}/approvals/{approval_id}/decision", {
          params: { path: { workspace_id: workspaceId, approval_id: approval.id } },
          body: {
            approved,
            scope,
            reason,
            rule: scope === "once" ? null : approval.offered,
            // The server rejects the decision if the arguments have changed.
            arguments_sha256: approval.sha256,
          },
        }),
      ),
    onSettled: () => queries.invalidateQueries({ queryKey: pendingKey(workspaceId) }),
  });
}

function approvalOf(response: Schema["ApprovalOut"]): Approval {
  return {
    id: response.id,
    callId: response.call_id,
    tool: response.tool,
    input: response.shown,
    agent: response.agent_name,
    sha256: response.arguments_sha256,
    changes: response.changes as unknown as Change[],
    effects: response.effects as unknown as Effects,
    rule: response.rule,
    reason: response.reason,
    isolation: response.isolation,
    offered: response.offered as Rule,
    replaces: response.replaces,
    expiresAt: response.expires_at,
    state: response.state,
    decidedBy: response.decided_by_name,
    denial: response.denial,
    scope: response.scope,
  };
}
