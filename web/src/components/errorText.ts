/** What an error means to a person. Messages of the server are already written for people. */
import { ApiError } from "../api/client";

const BY_CODE: Record<string, string> = {
  OVERLOADED: "The server is busy, and nothing was done. Try again in a moment.",
  INTERNAL_ERROR: "Something went wrong in the server. Its log says what; try again, or tell the operator.",
  UNREADABLE: "The answer did not come from Toolcrib. A proxy in between may be misconfigured or restarting.",
};

export function errorText(error: unknown): string {
  if (error instanceof ApiError) return BY_CODE[error.code] ?? error.message;
  // What browsers throw when no answer arrived; each says it differently.
  if (error instanceof TypeError && /fetch|network|load failed/i.test(error.message))
    return navigator.onLine === false
      ? "You are offline. Try again when you are connected."
      : "The server is unreachable. Try again in a moment.";
  return error instanceof Error ? error.message : String(error);
}
