/** What waits for the person, in all workspaces where they may decide. */
import { useQueries, useQuery } from "@tanstack/react-query";
import { api, type Schema, unwrap } from "../api/client";
import { type PendingCall, pendingQuery } from "../approvals/pausedCalls";

export type Inbox = Schema["InboxOut"];
export type InboxWorkspace = Schema["InboxWorkspaceOut"];

const KEY = ["inbox"] as const;

export function useInbox() {
  return useQuery({ queryKey: KEY, queryFn: () => unwrap(api.GET("/api/v1/inbox")) });
}

/** How many calls wait for a decision or an answer, anywhere. */
export function useWaitingCount(): number {
  return useInbox().data?.workspaces.reduce((sum, { pending }) => sum + pending, 0) ?? 0;
}

/** A call that waits, and where. */
export interface Waiting extends PendingCall {
  workspace: InboxWorkspace;
}

/** The calls that wait in these workspaces, oldest first. */
export function useWaiting(workspaces: readonly InboxWorkspace[]) {
  return useQueries({
    queries: workspaces.map(({ workspace_id }) => pendingQuery(workspace_id)),
    combine: (found) => ({
      isPending: found.some(({ isPending }) => isPending),
      error: found.find(({ error }) => error)?.error ?? null,
      calls: found
        .flatMap(({ data }, at) => withPlace(data, workspaces[at]))
        .sort((one, other) => one.createdAt.localeCompare(other.createdAt)),
    }),
  });
}

function withPlace(calls: readonly PendingCall[] | undefined, workspace: InboxWorkspace | undefined): Waiting[] {
  return workspace === undefined ? [] : (calls ?? []).map((call) => ({ ...call, workspace }));
}
