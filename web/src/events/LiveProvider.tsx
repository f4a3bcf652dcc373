/** Provides the live connection of a workspace to its screens. */
import { useQueryClient } from "@tanstack/react-query";
import { createContext, type ReactNode, useContext, useEffect, useState } from "react";
import { useStore } from "zustand";
import { refetch, refetchAll } from "./activity";
import { type Conversation, EMPTY } from "./conversation";
import { Live, type Status } from "./live";

const Context = createContext<Live | null>(null);

export function LiveProvider({ workspaceId, children }: { workspaceId: string; children: ReactNode }) {
  const queries = useQueryClient();
  const [live, setLive] = useState<Live | null>(null);
  useEffect(() => {
    const opened = new Live(
      workspaceId,
      (activity) => refetch(queries, activity),
      () => refetchAll(queries, workspaceId),
    );
    setLive(opened);
    return () => opened.close();
  }, [workspaceId, queries]);
  return live && <Context value={live}>{children}</Context>;
}

export function useLive(): Live {
  const live = useContext(Context);
  if (live === null) throw new Error("useLive needs a LiveProvider above it.");
  return live;
}

export function useLiveStatus(): Status {
  return useStore(useLive().store, (state) => state.status);
}

/** Subscribes to a session and returns its current conversation. */
export function useConversation(sessionId: string): Conversation {
  const live = useLive();
  useEffect(() => live.subscribe(sessionId), [live, sessionId]);
  return useStore(live.store, (state) => state.conversations[sessionId] ?? EMPTY);
}
