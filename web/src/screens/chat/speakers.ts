/** Who speaks in a conversation, for its messages. */
import { createContext, useContext } from "react";

export interface Speakers {
  /** The name of the agent that answers. */
  agent: string;
  /** The id of the reader. */
  me: string | null;
}

export const SpeakersContext = createContext<Speakers>({ agent: "Agent", me: null });

export function useSpeakers(): Speakers {
  return useContext(SpeakersContext);
}
