/** The status in one line. Screen readers announce its changes. */
import { type Conversation, currentRun, waitingCalls } from "../../events/conversation";
import { useLiveStatus } from "../../events/LiveProvider";

export function StatusLine({ conversation, mayAct }: { conversation: Conversation; mayAct: boolean }) {
  const status = useLiveStatus();
  return (
    <p role="status" className="mx-auto h-6 w-full max-w-3xl shrink-0 truncate px-4 text-xs leading-6 text-muted">
      {statusText(conversation, status, mayAct)}
    </p>
  );
}

function statusText(conversation: Conversation, status: string, mayAct: boolean): string {
  if (status === "offline") return "The server is unreachable. Reconnecting…";
  if (status === "connecting") return "Connecting…";
  if (!conversation.isLoaded) return "Loading conversation…";
  const waiting = waitingCalls(conversation).length;
  const whom = mayAct ? "you" : "a member";
  if (waiting > 0)
    return waiting === 1 ? `The agent is waiting for ${whom}.` : `${waiting} calls are waiting for ${whom}.`;
  const run = currentRun(conversation);
  if (run === null) return "";
  if (run.waitsFor === "provider" && run.until !== null)
    return `The agent waits for the provider until ${clock(run.until)}.`;
  const queued = Object.values(conversation.runs).filter((one) => one.state === "queued" && !one.held).length;
  const doing = run.waitsFor === "child" ? "The agent waits for its child runs" : "The agent is working";
  return `${doing}${queued > 0 ? `; ${queued} more queued` : ""}.`;
}

/** Formats a time of the next hours, such as 12:03. */
function clock(time: string): string {
  return new Date(time).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
}
