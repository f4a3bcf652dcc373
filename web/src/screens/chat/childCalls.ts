/** Which calls of a closed child run are shown below its name. Pure. */
import { type Call, isDecidedByOther, isPending } from "../../events/conversation";

interface Screen {
  /** The child run has its result. */
  isOver: boolean;
  /** Calls that waited for the person on this screen. */
  asked: ReadonlySet<string>;
  me: string | null;
}

/** What waits, child runs of its own, and what another person decided while this one was asked. */
export function staysShown({ id, pause, child, result }: Call, { isOver, asked, me }: Screen): boolean {
  if (isPending(pause)) return !isOver;
  if (pause !== null && asked.has(id) && isDecidedByOther(pause, me)) return true;
  return !isOver && child !== null && result === null;
}
