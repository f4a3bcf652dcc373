/** What changed in a workspace, and which queries read it. */
import type { QueryClient, QueryKey } from "@tanstack/react-query";

export type Topic = "approvals" | "runs" | "sessions" | "files" | "history" | "inbox";

export interface Activity {
  workspaceId: string;
  topics: readonly Topic[];
}

const INBOX: QueryKey = ["inbox"];

/** The queries of each topic. Whatever ends a call may have changed files. */
const READERS: Record<Topic, (workspaceId: string) => QueryKey[]> = {
  approvals: (id) => [[id, "pending"], [id, "pause"], ["files", id], ["history", id], INBOX],
  runs: (id) => [[id, "sessions"], [id, "session"], [id, "schedules"], [id, "review"], ["history", id], INBOX],
  sessions: (id) => [[id, "sessions"], [id, "session"], [id, "review"], INBOX],
  files: (id) => [
    ["files", id],
    [id, "review"],
    ["history", id],
  ],
  history: (id) => [["history", id]],
  inbox: (id) => [[id, "pending"], INBOX],
};

/** Fetches again what is shown of these topics. */
export function refetch(queries: QueryClient, { workspaceId, topics }: Activity): void {
  const keys = new Map(topics.flatMap((topic) => READERS[topic](workspaceId)).map((key) => [String(key), key]));
  for (const queryKey of keys.values()) void queries.invalidateQueries({ queryKey });
}

/** After a connection begins: what was fetched before it may have changed unnoticed. */
export function refetchAll(queries: QueryClient, workspaceId: string): void {
  refetch(queries, { workspaceId, topics: ["approvals", "runs", "sessions", "files"] });
}
