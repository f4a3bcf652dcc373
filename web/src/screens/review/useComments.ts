/** The comments of a review: kept until they are sent to the agent as one message. */
import { useMutation } from "@tanstack/react-query";
import { useState } from "react";
import { api, unwrap } from "../../api/client";
import { type Comment, messageOf } from "./comments";

export interface Comments {
  all: readonly Comment[];
  add: (comment: Comment) => void;
  remove: (id: string) => void;
  send: (which: readonly Comment[]) => void;
  /** Without a session, there is nobody to send them to. */
  canSend: boolean;
  isSending: boolean;
  error: unknown;
}

/** The comments of a review by its name. Comments that are not sent survive a reload. */
export function useComments(workspaceId: string, sessionId: string | null, name: string): Comments {
  const storage = `toolcrib.comments ${workspaceId} ${name}`;
  const [all, setAll] = useState<readonly Comment[]>(() => loaded(storage));
  const update = (change: (before: readonly Comment[]) => readonly Comment[]) =>
    setAll((before) => {
      const after = change(before);
      save(storage, after);
      return after;
    });
  const send = useMutation({
    mutationFn: (which: readonly Comment[]) => {
      if (sessionId === null) throw new Error("This call has no session, so nobody would read the comment.");
      return unwrap(
        api.POST("/api/v1/workspaces/{workspace_id}/sessions/{session_id}/messages", {
          params: { path: { workspace_id: workspaceId, session_id: sessionId } },
          body: { text: messageOf(which), attachments: [], priority: 100 },
        }),
      );
    },
    onSuccess: (_, which) => {
      const ids = which.map(({ id }) => id);
      update((before) => [
        ...before.filter(({ id }) => !ids.includes(id)),
        ...which.map((one) => ({ ...one, isSent: true })),
      ]);
    },
  });
  return {
    all,
    add: (comment) => update((before) => [...before, comment]),
    remove: (removed) => update((before) => before.filter(({ id }) => id !== removed)),
    send: send.mutate,
    canSend: sessionId !== null,
    isSending: send.isPending,
    error: send.error,
  };
}

function loaded(storage: string): Comment[] {
  try {
    const found: unknown = JSON.parse(sessionStorage.getItem(storage) ?? "[]");
    return Array.isArray(found) ? (found as Comment[]) : [];
  } catch {
    return [];
  }
}

function save(storage: string, comments: readonly Comment[]): void {
  try {
    sessionStorage.setItem(storage, JSON.stringify(comments.filter(({ isSent }) => !isSent)));
  } catch {
    // Full or forbidden: the comments stay on the page.
  }
}
