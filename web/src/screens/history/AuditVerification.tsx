/** Verifies the audit log: recomputes its seals in parts and shows the result. */
import { ShieldAlert, ShieldCheck } from "lucide-react";
import { useEffect, useRef, useState } from "react";
import { Button } from "../../components/Button";
import { ErrorNote } from "../../components/ErrorNote";
import { type VerificationProgress, verifyAuditLog } from "./history";

export function AuditVerification({ workspaceId }: { workspaceId: string }) {
  const [progress, setProgress] = useState<VerificationProgress | null>(null);
  const [error, setError] = useState<unknown>(null);
  const [isBusy, setIsBusy] = useState(false);
  const stop = useRef<AbortController>(null);
  useEffect(() => () => stop.current?.abort(), []);

  async function verify() {
    stop.current = new AbortController();
    setIsBusy(true);
    setError(null);
    setProgress(null);
    try {
      await verifyAuditLog(workspaceId, setProgress, stop.current.signal);
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
          Verify audit log
        </Button>
        <div role="status" className="min-w-0">
          {progress && <VerificationResult progress={progress} />}
        </div>
      </div>
      <ErrorNote error={error} />
      {progress && progress.problems.length > 0 && (
        <ul className="list-disc space-y-1 pl-6 text-bad">
          {progress.problems.map((problem) => (
            <li key={problem}>{problem}</li>
          ))}
        </ul>
      )}
    </div>
  );
}

function VerificationResult({ progress }: { progress: VerificationProgress }) {
  const records = progress.records.toLocaleString();
  if (!progress.isDone)
    return (
      <span className="text-muted">
        {progress.seals.toLocaleString()} of {progress.newest.toLocaleString()} seals…
      </span>
    );
  if (progress.problems.length > 0)
    return (
      <span className="flex items-center gap-2 font-medium text-bad">
        <ShieldAlert aria-hidden className="size-4" />
        Audit log verification failed
      </span>
    );
  return (
    <span className="flex flex-wrap items-center gap-2">
      <ShieldCheck aria-hidden className="size-4 text-good" />
      <span className="font-medium text-good">Audit log verified:</span> {records} records,{" "}
      {progress.seals.toLocaleString()} seals.
      {progress.unsealed > 0 && (
        <span className="text-muted">
          {progress.unsealed.toLocaleString()} records of this workspace are not sealed yet and were not checked.
        </span>
      )}
    </span>
  );
}
