/** The open review of a session: each file is kept or reverted, as a whole or by hunk. */
import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { asText } from "../../api/content";
import { callTool } from "../../api/tools";
import { useTitle } from "../../app/title";
import { Button } from "../../components/Button";
import { ConfirmButton } from "../../components/ConfirmButton";
import { Empty } from "../../components/Empty";
import { ErrorNote } from "../../components/ErrorNote";
import { Loading } from "../../components/Loading";
import { escaped, escapedLine } from "../../components/shownText";
import { useSession } from "../chat/sessions";
import { type SaveRequest, saveFile } from "../files/files";
import { EditFile } from "./EditFile";
import { ReviewPage } from "./ReviewPage";
import type { ReviewFile, ReviewHunk } from "./reviewFiles";
import {
  MOST_LINES,
  readLines,
  reviewKey,
  useDecideReview,
  useFilesOfSession,
  useSessionReview,
} from "./reviewSources";

interface Props {
  workspaceId: string;
  sessionId: string;
}

export function SessionReview({ workspaceId, sessionId }: Props) {
  const session = useSession(workspaceId, sessionId);
  const review = useSessionReview(workspaceId, sessionId);
  const queries = useQueryClient();
  const decide = useDecideReview(workspaceId, sessionId);
  const files = useFilesOfSession(review.data);
  const [editing, setEditing] = useState<string | null>(null);
  const [marked, setMarked] = useState<ReadonlyMap<string, ReadonlySet<string>>>(new Map());
  const title = session.data?.title ?? "Untitled session";
  useTitle("Review", title);
  if (review.error) return <ErrorNote error={review.error} />;
  if (review.isPending) return <Loading what="review" />;

  const marksOf = (file: ReviewFile) => file.hunks.filter(({ id }) => marked.get(file.path)?.has(id));
  function mark(file: ReviewFile, { id }: ReviewHunk) {
    const ids = new Set(marked.get(file.path));
    if (!ids.delete(id)) ids.add(id);
    setMarked(new Map([...marked, [file.path, ids]]));
  }
  function decideFile(file: ReviewFile, decision: "keep" | "revert") {
    const hunks = decision === "revert" ? marksOf(file).map(({ id }) => id) : [];
    decide.mutate({ decisions: [{ path: file.path, version: file.version, decision, hunks }], all: null });
  }
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
  const revertAll = () => decide.mutateAsync({ decisions: [], all: "revert", version: review.data?.version ?? "" });
  async function load(path: string) {
    const { content, hash } = await callTool(workspaceId, "read", { path, limit: MOST_LINES });
    const text = asText(content);
    if (text === null) throw new Error("The file is not text.");
    return { text, base: { content, hash } };
  }
  async function save(path: string, text: string, base: SaveRequest["base"]) {
    await saveFile(workspaceId, { path, base, text });
    await queries.invalidateQueries({ queryKey: reviewKey(workspaceId, sessionId) });
  }
  const hasMarks = files.some((file) => marksOf(file).length > 0);
  const isDone = files.length === 0;

  return (
    <ReviewPage
      workspaceId={workspaceId}
      sessionId={sessionId}
      name={sessionId}
      title={escaped(title)}
      back={{ href: `/w/${workspaceId}/chat/${sessionId}`, label: "Back to the chat" }}
      files={files}
      marked={marked}
      onMark={mark}
      read={async (file) => ({ lines: await readLines(workspaceId, file.path), side: "after" })}
      control={{
        buttons: (file) => (
          <FileButtons
            file={file}
            marks={marksOf(file).length}
            isBusy={decide.isPending}
            onDecide={(choice) => decideFile(file, choice)}
            onEdit={() => setEditing(file.path)}
          />
        ),
        accept: (file) => marksOf(file).length === 0 && decideFile(file, "keep"),
        reject: (file) => decideFile(file, "revert"),
        edit: (file) => file.isEditable && setEditing(file.path),
      }}
      decision={
        !isDone && (
          <>
            <ConfirmButton
              label="Revert all"
              consequence={`All ${files.length} files go back to what they were before the agent changed them. An undo brings the changes back.`}
              act={revertAll}
            />
            <Button
              small
              variant="primary"
              busy={decide.isPending}
              onClick={() => void keepAll().catch(() => undefined)}
            >
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
      {editing !== null && (
        <EditFile
          path={editing}
          hint="Saves the file as your change. The agent's changes in other lines still wait for the review."
          load={() => load(editing)}
          save={(text, { base }) => save(editing, text, base)}
          onClose={() => setEditing(null)}
        />
      )}
      {isDone && <Empty title="Nothing waits for a review">What the agent changes next appears here.</Empty>}
    </ReviewPage>
  );
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
