/** The status in one line. Screen readers announce its changes. */
import { type Conversation, currentRun, waitingCalls } from "../../events/conversation";
import { useLiveStatus } from "../../events/LiveProvider";

export function StatusLine({ conversation }: { conversation: Conversation }) {
  const status = useLiveStatus();
  return (
    <p role="status" className="mx-auto h-6 w-full max-w-3xl shrink-0 truncate px-4 text-xs leading-6 text-muted">
      {statusText(conversation, status)}
    </p>
  );
}

function statusText(conversation: Conversation, status: string): string {
  if (status === "offline") return "The server is unreachable. Reconnecting…";
  if (status === "connecting") return "Connecting…";
  if (!conversation.isLoaded) return "Loading conversation…";
  const waiting = waitingCalls(conversation).length;
  if (waiting > 0) return waiting === 1 ? "The agent is waiting for you." : `${waiting} calls are waiting for you.`;
  const run = currentRun(conversation);
  if (run === null) return "";
  const queued = Object.values(conversation.runs).filter((one) => one.state === "queued" && !one.held).length;
  return `The agent is working${queued > 0 ? `; ${queued} more queued` : ""}.`;
}
