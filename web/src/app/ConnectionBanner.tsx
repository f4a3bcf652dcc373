/** Says that the page may be out of date, while the connection to the server is lost. */
import { CloudOff } from "lucide-react";
import { useEffect, useState } from "react";
import { Button } from "../components/Button";
import { useLive, useLiveStatus } from "../events/LiveProvider";

/** A connection that is back by then was not missed: tokens expire, and servers restart. */
const PATIENCE = 1_500;

export function ConnectionBanner() {
  const live = useLive();
  const isOffline = useLiveStatus() === "offline";
  const [isShown, setIsShown] = useState(false);
  useEffect(() => {
    if (!isOffline) {
      setIsShown(false);
      return;
    }
    const timer = setTimeout(() => setIsShown(true), PATIENCE);
    return () => clearTimeout(timer);
  }, [isOffline]);
  return (
    <div role="status" aria-label="Connection">
      {isShown && (
        <p className="flex items-center gap-2 border-b border-warn/30 bg-warn-soft px-4 py-2 text-sm text-warn">
          <CloudOff aria-hidden className="size-4 shrink-0" />
          <span className="min-w-0 grow">
            {navigator.onLine ? "No connection to the server." : "You are offline."} What you see may be out of date.
          </span>
          <Button small variant="quiet" className="text-warn" onClick={live.retry}>
            Try now
          </Button>
        </p>
      )}
    </div>
  );
}
