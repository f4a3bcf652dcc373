/** Decides the selected approvals, after a list of them. On a phone it is where the thumb is. */
import { useState } from "react";
import { Button } from "../components/Button";
import { Dialog } from "../components/Dialog";
import type { WaitingApproval } from "./decideSeveral";
import { summaryOf } from "./summary";

interface Props {
  chosen: readonly WaitingApproval[];
  isBusy: boolean;
  onClear: () => void;
  onDecide: (approved: boolean) => void;
}

export function BulkBar({ chosen, isBusy, onClear, onDecide }: Props) {
  const [asked, setAsked] = useState<"Approve" | "Reject" | null>(null);
  if (chosen.length === 0) return null;
  const count = chosen.length === 1 ? "1 call" : `${chosen.length} calls`;

  function go() {
    setAsked(null);
    onDecide(asked === "Approve");
  }

  return (
    <>
      <div
        role="toolbar"
        aria-label="Selected approvals"
        className="fixed inset-x-3 bottom-3 z-20 mx-auto flex max-w-xl items-center gap-2 rounded-xl border border-line bg-raised p-2 pl-4 shadow-float pb-[max(0.5rem,env(safe-area-inset-bottom))]"
      >
        <span className="min-w-0 grow truncate font-medium">{chosen.length} selected</span>
        <Button variant="quiet" onClick={onClear}>
          Clear
        </Button>
        <Button variant="danger" busy={isBusy} onClick={() => setAsked("Reject")}>
          Reject
        </Button>
        <Button variant="primary" busy={isBusy} onClick={() => setAsked("Approve")}>
          Approve
        </Button>
      </div>
      <Dialog
        title={`${asked ?? "Approve"} ${count}?`}
        isOpen={asked !== null}
        onClose={() => setAsked(null)}
        foot={
          <>
            <Button onClick={() => setAsked(null)}>Cancel</Button>
            <Button variant={asked === "Reject" ? "danger" : "primary"} onClick={go}>
              {asked} {count}
            </Button>
          </>
        }
      >
        <ul className="space-y-2">
          {chosen.map(({ pause, workspace }) => {
            const { title, detail } = summaryOf(pause);
            return (
              <li key={pause.id}>
                <p>
                  {title} <span className="text-muted">in {workspace.name}</span>
                </p>
                {detail && <code className="block text-xs wrap-anywhere text-muted">{detail}</code>}
              </li>
            );
          })}
        </ul>
        <p className="mt-4 text-sm text-muted">
          Each is decided once, for the arguments that you see here. A call that has changed since is not decided.
        </p>
      </Dialog>
    </>
  );
}
