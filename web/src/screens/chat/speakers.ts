/** Who speaks in a conversation, and who reads it, for its rows. */
import { createContext, useContext } from "react";

export interface Speakers {
  /** The name of the agent that answers. */
  agent: string;
  /** The id of the reader. */
  me: string | null;
  /** Whether the reader is offered controls. */
  mayAct: boolean;
}

export const SpeakersContext = createContext<Speakers>({ agent: "Agent", me: null, mayAct: false });

export function useSpeakers(): Speakers {
  return useContext(SpeakersContext);
}
