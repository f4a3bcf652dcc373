import { useEffect } from "react";
import { useWaitingCount } from "../inbox/inbox";
import { titled, useIconMark } from "../inbox/waitingMark";

/** Sets the title of the browser tab, with the number of calls that wait for the person. */
export function useTitle(...parts: (string | null | undefined)[]): void {
  const waiting = useWaitingCount();
  const title = titled([...parts, "Toolcrib"].filter(Boolean).join(" · "), waiting);
  useIconMark(waiting);
  useEffect(() => {
    document.title = title;
  }, [title]);
}
