/** What goes on, in one line; said to those who do not see it whenever it changes. */
import { type Conversation, currentRun, waitingCalls } from "../../events/conversation";
import { useLiveStatus } from "../../events/LiveProvider";

export function StatusLine({ conversation }: { conversation: Conversation }) {
  const status = useLiveStatus();
  return (
    <p role="status" className="mx-auto h-6 w-full max-w-3xl shrink-0 truncate px-4 text-xs leading-6 text-muted">
      {wordsOf(conversation, status)}
    </p>
  );
}

function wordsOf(conversation: Conversation, status: string): string {
  if (status === "away") return "The server cannot be reached. Trying again…";
  if (status === "connecting") return "Connecting…";
  if (!conversation.isLoaded) return "Loading the conversation…";
  const waiting = waitingCalls(conversation).length;
  if (waiting > 0) return waiting === 1 ? "The agent waits for you." : `${waiting} calls wait for you.`;
  const run = currentRun(conversation);
  if (run === null) return "";
  const queued = Object.values(conversation.runs).filter((one) => one.state === "queued").length;
  return `The agent is at work${queued > 0 ? `; ${queued} more queued` : ""}.`;
}
