/** Opens the dialog that undoes or redoes changes. It is loaded when it is needed. */
import { lazy, Suspense } from "react";
import type { UndoTarget } from "./Changes";

const UndoPreview = lazy(() => import("./UndoPreview"));

export interface UndoRequest {
  target: UndoTarget;
  /** What is undone, for the title: `write /plan.md`. */
  what: string;
  /** The target is an undo, so undoing it redoes the original change. */
  isRedo?: boolean;
  /** The target is a decision of a review: its undo brings the agent's changes back. */
  isDecision?: boolean;
}

export interface UndoProps {
  workspaceId: string;
  /** The session whose history records the undo. */
  sessionId?: string | undefined;
  /** Null closes the dialog. */
  request: UndoRequest | null;
  onClose: () => void;
  /** Receives the id of the undo call, so that the caller can offer a redo. */
  onDone?: (callId: string) => void;
}

export function UndoDialog(props: UndoProps) {
  return props.request === null ? null : (
    <Suspense fallback={null}>
      <UndoPreview {...props} />
    </Suspense>
  );
}
