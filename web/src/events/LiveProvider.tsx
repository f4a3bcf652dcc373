/** Gives the screens of a workspace its live connection. */
import { createContext, type ReactNode, useContext, useEffect, useState } from "react";
import { useStore } from "zustand";
import { type Conversation, EMPTY } from "./conversation";
import { Live, type Status } from "./live";

const Context = createContext<Live | null>(null);

export function LiveProvider({ workspaceId, children }: { workspaceId: string; children: ReactNode }) {
  const [live, setLive] = useState<Live | null>(null);
  useEffect(() => {
    const opened = new Live(workspaceId);
    setLive(opened);
    return () => opened.close();
  }, [workspaceId]);
  return live && <Context value={live}>{children}</Context>;
}

export function useLive(): Live {
  const live = useContext(Context);
  if (live === null) throw new Error("There is no LiveProvider above.");
  return live;
}

export function useLiveStatus(): Status {
  return useStore(useLive().store, (state) => state.status);
}

/** A session as it is now, for as long as it is looked at. */
export function useConversation(sessionId: string): Conversation {
  const live = useLive();
  useEffect(() => live.watch(sessionId), [live, sessionId]);
  return useStore(live.store, (state) => state.conversations[sessionId] ?? EMPTY);
}
