/** Forks: a session that continues another one from a message, or with another text instead of it. */
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useLocation } from "wouter";
import { api, unwrap } from "../../api/client";
import type { Conversation, Message } from "../../events/conversation";
import { forgetSessions } from "./sessions";

interface ForkRequest {
  messageId: string;
  /** Sent instead of the message. */
  text?: string;
}

/** Forks the session and opens the fork. */
export function useFork(workspaceId: string, sessionId: string) {
  const queries = useQueryClient();
  const [, go] = useLocation();
  return useMutation({
    mutationFn: ({ messageId, text }: ForkRequest) =>
      unwrap(
        api.POST("/api/v1/workspaces/{workspace_id}/sessions/{session_id}/forks", {
          params: { path: { workspace_id: workspaceId, session_id: sessionId } },
          body: { message_id: messageId, text: text ?? null },
        }),
      ),
    onSuccess: (fork) => {
      void forgetSessions(queries, workspaceId);
      go(`/w/${workspaceId}/chat/${fork.id}`);
    },
  });
}

/** Returns the person's message that a message of the agent answers. */
export function questionOf({ order, rows }: Conversation, messageId: string): Message | null {
  for (let at = order.lastIndexOf(messageId) - 1; at >= 0; at--) {
    const row = rows[order[at] as string];
    if (row?.kind === "message" && row.role === "user") return row;
  }
  return null;
}
