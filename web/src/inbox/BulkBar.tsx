/** Decides the selected approvals, after showing what each of them would do. On a phone it is where the thumb is. */
import { useQueries } from "@tanstack/react-query";
import { useState } from "react";
import { WholeApproval } from "../approvals/ApprovalCard";
import { fullPauseQuery, mayBeCut } from "../approvals/pausedCalls";
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
  /** Whether everything that is decided about is on the page. */
  const isShown = useQueries({
    queries: chosen
      .filter(({ pause }) => asked !== null && mayBeCut(pause))
      .map(({ pause, workspace }) => fullPauseQuery(workspace.workspace_id, pause.id)),
    combine: (found) => found.every(({ isSuccess }) => isSuccess),
  });
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
        wide
        onClose={() => setAsked(null)}
        foot={
          <>
            <Button onClick={() => setAsked(null)}>Cancel</Button>
            <Button
              variant={asked === "Reject" ? "danger" : "primary"}
              disabled={asked === "Approve" && !isShown}
              onClick={go}
            >
              {asked} {count}
            </Button>
          </>
        }
      >
        <div className="space-y-3">
          {chosen.map(({ pause, workspace }) => {
            const { title, detail } = summaryOf(pause);
            return (
              <section
                key={pause.id}
                aria-label={`${title} ${detail}`}
                className="space-y-3 rounded-md border border-line p-3"
              >
                <h3 className="font-medium">
                  {title} <span className="font-normal text-muted">in {workspace.name}</span>
                </h3>
                <WholeApproval workspaceId={workspace.workspace_id} approval={pause} />
              </section>
            );
          })}
        </div>
        <p className="mt-4 text-sm text-muted">
          Each is decided once, for what you see here. A call whose effect changes before its turn is not applied, and
          is asked about again.
        </p>
      </Dialog>
    </>
  );
}
