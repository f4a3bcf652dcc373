/** Whether the book is whole: its seals are recomputed part by part, and what is found is said. */
import { ShieldAlert, ShieldCheck } from "lucide-react";
import { useEffect, useRef, useState } from "react";
import { Button } from "../../parts/Button";
import { ErrorNote } from "../../parts/ErrorNote";
import { type Verified, verifyBook } from "./past";

export function Verification({ workspaceId }: { workspaceId: string }) {
  const [so, setSo] = useState<Verified | null>(null);
  const [error, setError] = useState<unknown>(null);
  const [isBusy, setIsBusy] = useState(false);
  const stop = useRef<AbortController>(null);
  useEffect(() => () => stop.current?.abort(), []);

  async function verify() {
    stop.current = new AbortController();
    setIsBusy(true);
    setError(null);
    setSo(null);
    try {
      await verifyBook(workspaceId, setSo, stop.current.signal);
    } catch (thrown) {
      if (!stop.current.signal.aborted) setError(thrown);
    } finally {
      setIsBusy(false);
    }
  }

  return (
    <div className="space-y-2">
      <div className="flex flex-wrap items-center gap-3">
        <Button busy={isBusy} onClick={verify}>
          Verify the book
        </Button>
        <div role="status" className="min-w-0">
          {so && <Found so={so} />}
        </div>
      </div>
      <ErrorNote error={error} />
      {so && so.problems.length > 0 && (
        <ul className="list-disc space-y-1 pl-5 text-bad">
          {so.problems.map((problem) => (
            <li key={problem}>{problem}</li>
          ))}
        </ul>
      )}
    </div>
  );
}

function Found({ so }: { so: Verified }) {
  const records = so.records.toLocaleString();
  if (!so.isDone)
    return (
      <span className="text-muted">
        {so.seals.toLocaleString()} of {so.newest.toLocaleString()} seals…
      </span>
    );
  if (so.problems.length > 0)
    return (
      <span className="flex items-center gap-1.5 font-medium text-bad">
        <ShieldAlert aria-hidden className="size-4" />
        The book is not whole.
      </span>
    );
  return (
    <span className="flex flex-wrap items-center gap-1.5">
      <ShieldCheck aria-hidden className="size-4 text-good" />
      <span className="font-medium text-good">The book is whole:</span> {records} records of this server under{" "}
      {so.seals.toLocaleString()} seals.
      {so.unsealed > 0 && (
        <span className="text-muted">
          {so.unsealed.toLocaleString()} of this workspace are not sealed yet, so nothing is said about them.
        </span>
      )}
    </span>
  );
}
