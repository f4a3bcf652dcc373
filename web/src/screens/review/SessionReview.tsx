/** The open review of a session: each file is kept or reverted, as a whole or by hunk. */
import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
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
import { escaped, escapedLine, grouped, ONE_WAY } from "../../components/shownText";
import { UndoDialog } from "../../components/UndoDialog";
import { useSession } from "../chat/sessions";
import { EditFile } from "./EditFile";
import { type LastDecision, useLastDecision, useMarks } from "./marks";
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
  const files = useFilesOfSession(workspaceId, review.data);
  const more = useMoreLines(workspaceId, sessionId);
  /** The file as it was when the editor opened: a later version is not overwritten. */
  const [editing, setEditing] = useState<ReviewFile | null>(null);
  const [undoing, setUndoing] = useState<string | null>(null);
  const name = `${useMe().data?.id ?? ""} ${workspaceId} ${sessionId}`;
  const marks = useMarks(name);
  const [decided, setDecided] = useLastDecision(name);
  const decide = useDecideReview(workspaceId, sessionId, (done) => {
    setDecided(done);
    marks.forget([...done.kept, ...done.reverted.map(({ path }) => path)]);
  });
  /** The files that the person has not viewed, while the page asks whether to keep them too. */
  const [unseen, setUnseen] = useState<readonly ReviewFile[] | null>(null);
  const title = session.data?.title ?? "Untitled session";
  useTitle("Review", title);
  if (review.error) return <ErrorNote error={review.error} />;
  if (review.isPending) return <ReviewSkeleton />;

  const unlisted = review.data.total - review.data.files.length;
  /** Reverts a file, or what is marked in it. */
  function decideFile(file: ReviewFile, decision: "keep" | "revert") {
    const hunks = decision === "revert" ? [...marks.of(file)] : [];
    decide.mutate({ decisions: [{ path: file.path, version: file.version, decision, hunks }] });
  }
  /** Keeps the file, except for the hunks that are marked. */
  const keepFile = (file: ReviewFile) => decideFile(file, marks.of(file).size > 0 ? "revert" : "keep");
  /** A whole file is reverted only by a key of its own. */
  const markHunk = (file: ReviewFile, hunk: ReviewHunk | null) => hunk?.isRevertible && marks.toggle(file, hunk);
  /** Keeps all files that could be shown, except for the hunks that are marked. */
  function keepAll() {
    if (!hasMarks && !files.some(({ flaw }) => flaw !== null))
      return decide.mutateAsync({ all: "keep", version: review.data?.version ?? "", shown: files });
    const decisions = files
      .filter(({ flaw }) => flaw === null)
      .map((file) => {
        const hunks = [...marks.of(file)];
        const decision = hunks.length > 0 ? "revert" : "keep";
        return { path: file.path, version: file.version, decision, hunks } as const;
      });
    return decide.mutateAsync({ decisions });
  }
  /** Asks first if there are files that the person has not viewed. */
  function askToKeepAll(viewed: Viewed) {
    const rest = files.filter((file) => !viewed.has(file) || marks.lost(file) > 0 || file.flaw !== null);
    if (rest.length + unlisted > 0) setUnseen(rest);
    else void keepAll().catch(() => undefined);
  }
  const revertAll = () => decide.mutateAsync({ all: "revert", version: review.data?.version ?? "", shown: files });
  async function load(path: string) {
    const { content } = await callTool(workspaceId, "read", { path, limit: MOST_LINES });
    const text = asText(content);
    if (text === null) throw new Error("The file is not text.");
    return { text };
  }
  async function save({ path, version }: ReviewFile, content: string) {
    await decide.mutateAsync({ decisions: [{ path, version, decision: "edit", hunks: [], content }] });
  }
  const undoLast = () => decided !== null && !decided.isUndone && setUndoing(decided.call_id);
  const hasMarks = files.some((file) => marks.of(file).size > 0);
  const isDone = files.length === 0;

  return (
    <ReviewPage
      workspaceId={workspaceId}
      sessionId={sessionId}
      name={sessionId}
      title={escaped(title)}
      note={decided && <DecidedNote decided={decided} onUndo={undoLast} />}
      back={{ href: `/w/${workspaceId}/chat/${sessionId}`, label: "Back to the chat" }}
      files={files}
      marked={marks.of}
      read={async (file) => ({ lines: await readLines(workspaceId, file.path), side: "after" })}
      more={more}
      {...(mayWrite
        ? {
            onMark: marks.toggle,
            control: {
              buttons: (file) => (
                <FileButtons
                  file={file}
                  marks={marks.of(file).size}
                  isBusy={decide.isPending}
                  onDecide={(choice) => decideFile(file, choice)}
                  onEdit={() => setEditing(file)}
                />
              ),
              keys: [
                { keys: "a", does: "Keep the file, except for its marked changes", act: keepFile },
                { keys: "r", does: "Mark the change for its revert", act: markHunk },
                {
                  keys: "R",
                  does: "Revert the file, or only its marked changes",
                  act: (file) => decideFile(file, "revert"),
                },
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
          count={review.data.total - files.filter(({ flaw }) => flaw !== null).length}
          unlisted={unlisted}
          marks={files.reduce((sum, file) => sum + marks.of(file).size, 0)}
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
          if (decided?.call_id === undoing) setDecided({ ...decided, isUndone: true });
          void queries.invalidateQueries({ queryKey: reviewKey(workspaceId, sessionId) });
        }}
      />
      {isDone && <Empty title="Nothing waits for a review">What the agent changes next appears here.</Empty>}
    </ReviewPage>
  );
}

interface NoteProps {
  decided: LastDecision;
  onUndo: () => void;
}

/** What the last decision did, and the way back. */
function DecidedNote({ decided: { kept, reverted, edited, isUndone }, onUndo }: NoteProps) {
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
  /** How many hunks are marked: they are reverted. */
  marks: number;
  onClose: () => void;
  onKeep: () => void;
}

function KeepAllDialog({ unseen, count, unlisted, marks, onClose, onKeep }: KeepAllProps) {
  const kept = unseen.filter(({ flaw }) => flaw === null);
  const open = unseen.filter(({ flaw }) => flaw !== null);
  return (
    <Dialog
      title="Keep files that you have not viewed?"
      isOpen
      onClose={onClose}
      foot={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button variant="primary" disabled={count === 0} onClick={onKeep}>
            Keep {filesOf(count)}
            {marks > 0 && (marks === 1 ? " but 1 hunk" : ` but ${grouped(marks)} hunks`)}
          </Button>
        </>
      }
    >
      <div className="space-y-3">
        {open.length > 0 && (
          <section aria-label="Files that stay open" className="space-y-1">
            <p>{filesOf(open.length)} could not be shown, and will stay open:</p>
            <Paths files={open} />
          </section>
        )}
        {marks > 0 && <p>{marks === 1 ? "1 marked hunk is" : `${grouped(marks)} marked hunks are`} reverted.</p>}
        {kept.length + unlisted > 0 && (
          <>
            <p>
              {grouped(kept.length + unlisted)} of {filesOf(count)} {kept.length + unlisted === 1 ? "is" : "are"} not
              marked as viewed:
            </p>
            <Paths label="Files that are not viewed" files={kept} unlisted={unlisted} />
          </>
        )}
      </div>
    </Dialog>
  );
}

function Paths({ label, files, unlisted = 0 }: { label?: string; files: readonly ReviewFile[]; unlisted?: number }) {
  return (
    <ul aria-label={label} className="space-y-1 text-xs">
      {files.map((file) => (
        <li key={file.path} className="wrap-anywhere">
          <code className={ONE_WAY}>{escapedLine(file.path)}</code>
          <span className="text-warn"> {notShown(file)}</span>
        </li>
      ))}
      {unlisted > 0 && <li className="text-warn">and {filesOf(unlisted)} that this page does not list</li>}
    </ul>
  );
}

/** Says which changes of a file are not on the page. */
function notShown({ change, facts, flaw, hunks, images, rest }: ReviewFile): string {
  if (flaw !== null) return flaw;
  if (rest !== null) return rest.count === null ? "not all lines loaded" : `${grouped(rest.count)} lines not loaded`;
  return hunks.length + images.length === 0 && change !== "moved" ? [...facts, "no lines to show"].join(", ") : "";
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
        {marks > 0 ? `Revert ${marks} of ${file.hunkCount} hunks` : "Revert"}
      </Button>
      <Button small disabled={isBusy || marks > 0} onClick={() => onDecide("keep")}>
        Keep
      </Button>
    </>
  );
}
