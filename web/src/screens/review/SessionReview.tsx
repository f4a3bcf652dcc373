/** The open review of a session: each file is kept or reverted, as a whole or by hunk. */
import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import type { Schema } from "../../api/client";
import { asText } from "../../api/content";
import { callTool } from "../../api/tools";
import { useMe } from "../../app/me";
import { useTitle } from "../../app/title";
import { useMayWrite } from "../../app/workspaces";
import { Button } from "../../components/Button";
import { filesOf } from "../../components/Changes";
import { ConfirmButton } from "../../components/ConfirmButton";
import { Dialog } from "../../components/Dialog";
import { Empty } from "../../components/Empty";
import { ErrorNote } from "../../components/ErrorNote";
import { escaped, escapedLine, grouped } from "../../components/shownText";
import { UndoDialog } from "../../components/UndoDialog";
import { useSession } from "../chat/sessions";
import { EditFile } from "./EditFile";
import { useLastDecision, useMarks } from "./marks";
import { ReviewPage } from "./ReviewPage";
import { ReviewSkeleton } from "./ReviewSkeleton";
import type { ReviewFile, ReviewHunk } from "./reviewFiles";
import {
  MOST_LINES,
  readLines,
  reviewKey,
  useDecideReview,
  useFilesOfSession,
  useMoreLines,
  useSessionReview,
} from "./reviewSources";
import type { Viewed } from "./viewed";

interface Props {
  workspaceId: string;
  sessionId: string;
}

export function SessionReview({ workspaceId, sessionId }: Props) {
  const session = useSession(workspaceId, sessionId);
  const mayWrite = useMayWrite(workspaceId);
  const review = useSessionReview(workspaceId, sessionId);
  const queries = useQueryClient();
  const decide = useDecideReview(workspaceId, sessionId);
  const files = useFilesOfSession(workspaceId, review.data);
  const more = useMoreLines(workspaceId, sessionId);
  /** The file as it was when the editor opened: a later version is not overwritten. */
  const [editing, setEditing] = useState<ReviewFile | null>(null);
  const [undoing, setUndoing] = useState<string | null>(null);
  const [undone, setUndone] = useState<ReadonlySet<string>>(new Set());
  const name = `${useMe().data?.id ?? ""} ${workspaceId} ${sessionId}`;
  const marks = useMarks(name);
  const [decided, setDecided] = useLastDecision(name);
  /** The files that the person has not viewed, while the page asks whether to keep them too. */
  const [unseen, setUnseen] = useState<readonly ReviewFile[] | null>(null);
  // biome-ignore lint/correctness/useExhaustiveDependencies: only when something is decided
  useEffect(() => {
    if (decide.data === undefined) return;
    const { kept, reverted } = decide.data;
    setDecided(decide.data);
    marks.forget([...kept, ...reverted.map(({ path }) => path)]);
  }, [decide.data]);
  const title = session.data?.title ?? "Untitled session";
  useTitle("Review", title);
  if (review.error) return <ErrorNote error={review.error} />;
  if (review.isPending) return <ReviewSkeleton />;

  const marksOf = marks.of;
  const unlisted = review.data.total - review.data.files.length;
  function decideFile(file: ReviewFile, decision: "keep" | "revert") {
    const hunks = decision === "revert" ? marksOf(file).map(({ id }) => id) : [];
    decide.mutate({ decisions: [{ path: file.path, version: file.version, decision, hunks }], all: null });
  }
  /** Keeps the file, except for the hunks that are marked. */
  const keepFile = (file: ReviewFile) => decideFile(file, marksOf(file).length > 0 ? "revert" : "keep");
  /** A whole file is reverted only by a key of its own. */
  const markHunk = (file: ReviewFile, hunk: ReviewHunk | null) => hunk?.isRevertible && marks.toggle(file, hunk);
  /** Keeps all files, except for the hunks that are marked. */
  function keepAll() {
    const partly = files.filter((file) => marksOf(file).length > 0);
    if (partly.length === 0)
      return decide.mutateAsync({ decisions: [], all: "keep", version: review.data?.version ?? "" });
    const decisions = files.map((file) => {
      const hunks = marksOf(file).map(({ id }) => id);
      return { path: file.path, version: file.version, decision: hunks.length > 0 ? "revert" : "keep", hunks } as const;
    });
    return decide.mutateAsync({ decisions, all: null });
  }
  /** Asks first if there are files that the person has not viewed. */
  function askToKeepAll(viewed: Viewed) {
    const rest = files.filter((file) => !viewed.has(file) || marks.lost(file) > 0);
    if (rest.length + unlisted > 0) setUnseen(rest);
    else void keepAll().catch(() => undefined);
  }
  const revertAll = () => decide.mutateAsync({ decisions: [], all: "revert", version: review.data?.version ?? "" });
  async function load(path: string) {
    const { content } = await callTool(workspaceId, "read", { path, limit: MOST_LINES });
    const text = asText(content);
    if (text === null) throw new Error("The file is not text.");
    return { text };
  }
  async function save({ path, version }: ReviewFile, content: string) {
    await decide.mutateAsync({ decisions: [{ path, version, decision: "edit", hunks: [], content }], all: null });
  }
  const undoLast = () => decided !== null && !undone.has(decided.call_id) && setUndoing(decided.call_id);
  const hasMarks = files.some((file) => marksOf(file).length > 0);
  const isDone = files.length === 0;

  return (
    <ReviewPage
      workspaceId={workspaceId}
      sessionId={sessionId}
      name={sessionId}
      title={escaped(title)}
      note={decided && <DecidedNote decided={decided} isUndone={undone.has(decided.call_id)} onUndo={undoLast} />}
      back={{ href: `/w/${workspaceId}/chat/${sessionId}`, label: "Back to the chat" }}
      files={files}
      marked={marks.all}
      read={async (file) => ({ lines: await readLines(workspaceId, file.path), side: "after" })}
      more={more}
      {...(mayWrite
        ? {
            onMark: marks.toggle,
            control: {
              buttons: (file) => (
                <FileButtons
                  file={file}
                  marks={marksOf(file).length}
                  isBusy={decide.isPending}
                  onDecide={(choice) => decideFile(file, choice)}
                  onEdit={() => setEditing(file)}
                />
              ),
              keys: [
                { keys: "a", does: "Keep the file, except for its marked changes", act: keepFile },
                { keys: "r", does: "Mark the change for its revert", act: markHunk },
                { keys: "R", does: "Revert the file", act: (file) => decideFile(file, "revert") },
                { keys: "e", does: "Edit the file", act: (file) => file.isEditable && setEditing(file) },
              ],
              pageKeys: [
                { keys: "A", does: "Keep all that is left, except for marked changes", act: askToKeepAll },
                { keys: "u", does: "Undo the last decision", act: undoLast },
              ],
            },
          }
        : {})}
      decision={(viewed) =>
        !isDone &&
        mayWrite && (
          <>
            <ConfirmButton
              label="Revert all"
              consequence={`All ${files.length} files go back to what they were before the agent changed them. An undo brings the changes back.`}
              act={revertAll}
            />
            <Button small variant="primary" busy={decide.isPending} onClick={() => askToKeepAll(viewed)}>
              {hasMarks ? "Keep all but marked hunks" : "Keep all"}
            </Button>
          </>
        )
      }
    >
      {decide.error && <ErrorNote error={decide.error} />}
      {decide.data?.conflicts.map((one) => (
        <p key={one.path} role="alert" className="rounded-md bg-bad-soft px-3 py-2 text-sm text-bad">
          {escapedLine(one.path)}: {one.reason}
        </p>
      ))}
      {files.map((file) => marks.lost(file) > 0 && <LostMarks key={file.path} file={file} count={marks.lost(file)} />)}
      {unseen !== null && (
        <KeepAllDialog
          unseen={unseen}
          count={review.data.total}
          unlisted={unlisted}
          onClose={() => setUnseen(null)}
          onKeep={() => {
            setUnseen(null);
            void keepAll().catch(() => undefined);
          }}
        />
      )}
      {editing !== null && (
        <EditFile
          path={editing.path}
          hint="Saved as your change, and the agent is told. Its own changes still wait for the review."
          load={() => load(editing.path)}
          save={(text) => save(editing, text)}
          onClose={() => setEditing(null)}
        />
      )}
      <UndoDialog
        workspaceId={workspaceId}
        sessionId={sessionId}
        request={undoing === null ? null : { target: { calls: [undoing] }, what: "the decision", isDecision: true }}
        onClose={() => setUndoing(null)}
        onDone={() => {
          if (undoing !== null) setUndone(new Set([...undone, undoing]));
          void queries.invalidateQueries({ queryKey: reviewKey(workspaceId, sessionId) });
        }}
      />
      {isDone && <Empty title="Nothing waits for a review">What the agent changes next appears here.</Empty>}
    </ReviewPage>
  );
}

interface NoteProps {
  decided: Schema["ReviewDecisionOut"];
  isUndone: boolean;
  onUndo: () => void;
}

/** What the last decision did, and the way back. */
function DecidedNote({ decided: { kept, reverted, edited }, isUndone, onUndo }: NoteProps) {
  const parts = [
    kept.length > 0 ? `kept ${named(kept)}` : "",
    reverted.length > 0 ? `reverted ${named(reverted.map(({ path }) => path))}` : "",
    edited.length > 0 ? `edited ${named(edited.map(({ path }) => path))}` : "",
  ].filter(Boolean);
  if (parts.length === 0) return null;
  return (
    <div className="pointer-events-auto flex min-h-10 max-w-2xl items-center gap-3 rounded-lg border border-line bg-raised py-1 pr-2 pl-4 text-sm shadow-float">
      <p role="status" aria-label="Last decision" className="min-w-0 grow wrap-anywhere">
        You {parts.join(", ")}
        {isUndone ? ". It was undone." : ". The agent is told with your next message."}
      </p>
      {!isUndone && (
        <Button small variant="quiet" onClick={onUndo}>
          Undo
        </Button>
      )}
    </div>
  );
}

/** The file has changed since its hunks were marked, so that the marks are void. */
function LostMarks({ file, count }: { file: ReviewFile; count: number }) {
  return (
    <p role="alert" className="rounded-md bg-warn-soft px-3 py-2 text-sm text-warn">
      {escapedLine(file.path)}: {count === 1 ? "a marked change is" : `${count} marked changes are`} different now. Look
      at the file again.
    </p>
  );
}

interface KeepAllProps {
  unseen: readonly ReviewFile[];
  count: number;
  /** Files beyond those that the page lists. */
  unlisted: number;
  onClose: () => void;
  onKeep: () => void;
}

function KeepAllDialog({ unseen, count, unlisted, onClose, onKeep }: KeepAllProps) {
  return (
    <Dialog
      title="Keep files that you have not viewed?"
      isOpen
      onClose={onClose}
      foot={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button variant="primary" onClick={onKeep}>
            Keep {filesOf(count)}
          </Button>
        </>
      }
    >
      <div className="space-y-3">
        <p>
          {grouped(unseen.length + unlisted)} of {filesOf(count)} {unseen.length + unlisted === 1 ? "is" : "are"} not
          marked as viewed:
        </p>
        <ul aria-label="Files that are not viewed" className="space-y-1 text-xs">
          {unseen.map((file) => (
            <li key={file.path} className="wrap-anywhere">
              <code className="[direction:ltr] [unicode-bidi:bidi-override]">{escapedLine(file.path)}</code>
              {file.hunks.length === 0 && file.change !== "moved" && (
                <span className="text-warn"> {[...file.facts, "its lines are not shown"].join(", ")}</span>
              )}
            </li>
          ))}
          {unlisted > 0 && <li className="text-warn">and {filesOf(unlisted)} that this page does not list</li>}
        </ul>
      </div>
    </Dialog>
  );
}

function named(paths: readonly string[]): string {
  const [first = "", ...others] = paths;
  return others.length === 0 ? escapedLine(first) : `${paths.length} files`;
}

interface ButtonProps {
  file: ReviewFile;
  marks: number;
  isBusy: boolean;
  onDecide: (decision: "keep" | "revert") => void;
  onEdit: () => void;
}

function FileButtons({ file, marks, isBusy, onDecide, onEdit }: ButtonProps) {
  return (
    <>
      {file.isEditable && (
        <Button small variant="quiet" onClick={onEdit}>
          Edit
        </Button>
      )}
      <Button small variant={marks > 0 ? "danger" : "plain"} disabled={isBusy} onClick={() => onDecide("revert")}>
        {marks > 0 ? `Revert ${marks} of ${file.hunks.length} hunks` : "Revert"}
      </Button>
      <Button small disabled={isBusy || marks > 0} onClick={() => onDecide("keep")}>
        Keep
      </Button>
    </>
  );
}
