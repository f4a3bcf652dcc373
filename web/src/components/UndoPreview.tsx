/** Undoes or redoes changes after a preview of every file. */
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { lazy, Suspense, useState } from "react";
import type { Schema } from "../api/client";
import { asText } from "../api/content";
import { nameOfAuthor, useNames } from "../api/names";
import { callTool } from "../api/tools";
import { Button } from "./Button";
import { ChangeBadge, filesOf, pathOf } from "./Changes";
import { Dialog } from "./Dialog";
import { Empty } from "./Empty";
import { ErrorNote } from "./ErrorNote";
import { Loading } from "./Loading";
import { RelativeTime } from "./RelativeTime";
import { escapedLine } from "./shownText";
import type { UndoProps } from "./UndoDialog";

const TextDiff = lazy(() => import("../editor/TextDiff"));

export default function UndoPreview({ workspaceId, sessionId, request, onClose, onDone }: UndoProps) {
  const [force, setForce] = useState(false);
  const queries = useQueryClient();
  const preview = useQuery({
    queryKey: ["files", workspaceId, "undo", request?.target, force],
    // Without the session: a preview is not part of its history.
    queryFn: () => callTool(workspaceId, "undo", { ...request?.target, dry_run: true, force }),
    enabled: request !== null,
    staleTime: 0,
  });
  const undo = useMutation({
    mutationFn: () => callTool(workspaceId, "undo", { ...request?.target, force }, sessionId),
    onSuccess: async (done) => {
      await Promise.all([
        queries.invalidateQueries({ queryKey: ["files", workspaceId] }),
        queries.invalidateQueries({ queryKey: ["history", workspaceId] }),
      ]);
      onDone?.(done.call_id);
      close();
    },
  });

  function close() {
    setForce(false);
    undo.reset();
    onClose();
  }

  const verb = request?.isRedo ? "Redo" : "Undo";
  const count = preview.data?.total_changes ?? 0;
  const reopened = preview.data?.reopened.length ?? 0;
  return (
    <Dialog
      title={`${verb} ${request?.what ?? ""}`}
      isOpen={request !== null}
      onClose={close}
      wide
      foot={
        <>
          <Button onClick={close}>Cancel</Button>
          <Button
            variant="primary"
            busy={undo.isPending}
            disabled={count + reopened === 0}
            onClick={() => undo.mutate()}
          >
            {verb} {request?.isDecision ? "the decision" : filesOf(count)}
          </Button>
        </>
      }
    >
      <div className="space-y-3">
        {preview.isPending && <Loading what="preview" />}
        <ErrorNote error={preview.error ?? undo.error} />
        {preview.data && (
          <Preview workspaceId={workspaceId} found={preview.data} isDecision={request?.isDecision ?? false} />
        )}
        {preview.data && (force || preview.data.conflicts.some((conflict) => conflict.theirs !== null)) && (
          <label className="flex items-start gap-2">
            <input
              type="checkbox"
              className="mt-1"
              checked={force}
              onChange={(event) => setForce(event.target.checked)}
            />
            <span>Also undo files that others changed. Their versions stay in the history.</span>
          </label>
        )}
      </div>
    </Dialog>
  );
}

interface PreviewProps {
  workspaceId: string;
  found: Schema["UndoResult"];
  isDecision: boolean;
}

function Preview({ workspaceId, found, isDecision }: PreviewProps) {
  return (
    <>
      {found.changes.length + found.conflicts.length + found.reopened.length === 0 && (
        <Empty title="Nothing to undo">The files already have this content.</Empty>
      )}
      {found.changes.length > 0 && (
        <section aria-label="Changes" className="space-y-2">
          <h3 className="font-medium">{filesOf(found.total_changes)} will change</h3>
          <ul className="space-y-2">
            {found.changes.map((one) => (
              <li key={one.file_id} className="rounded-md border border-line">
                <RevertedFile workspaceId={workspaceId} change={one} isDecision={isDecision} />
              </li>
            ))}
          </ul>
        </section>
      )}
      {found.reopened.length > 0 && (
        <section aria-label="Back in the review" className="space-y-2">
          <h3 className="font-medium">{filesOf(found.reopened.length)} will wait for a review again</h3>
          <ul className="space-y-1 text-xs">
            {found.reopened.map((one) => (
              <li key={one.file_id} className="wrap-anywhere">
                <code className="[direction:ltr] [unicode-bidi:bidi-override]">{escapedLine(one.path)}</code>
              </li>
            ))}
          </ul>
        </section>
      )}
      {found.conflicts.length > 0 && (
        <section aria-label="Skipped files" className="space-y-2">
          <h3 className="font-medium text-warn">{filesOf(found.total_conflicts)} skipped</h3>
          <ul className="space-y-2">
            {found.conflicts.map((one) => (
              <li key={one.ours.version_id} className="rounded-md border border-warn/50 bg-warn-soft">
                <Conflict workspaceId={workspaceId} conflict={one} />
              </li>
            ))}
          </ul>
        </section>
      )}
    </>
  );
}

const RESULTS: Record<Schema["RevertedFile"]["change"], string> = {
  created: "will be restored",
  deleted: "will be deleted",
  modified: "will be reverted",
  moved: "will be moved back",
};

interface RevertedProps {
  workspaceId: string;
  change: Schema["RevertedFile"];
  isDecision: boolean;
}

function RevertedFile({ workspaceId, change, isDecision }: RevertedProps) {
  const [isOpen, setIsOpen] = useState(false);
  const head = (
    <span className="inline-flex w-[calc(100%-1.25rem)] flex-wrap items-center gap-2 align-middle">
      <ChangeBadge change={change.change} />
      <span className="min-w-0 wrap-anywhere">{pathOf(change)}</span>
      <span className="text-muted">{isDecision ? "gets the agent's change back" : RESULTS[change.change]}</span>
    </span>
  );
  if (change.kind !== "file") return <div className="px-3 py-2">{head}</div>;
  return (
    <details onToggle={(event) => setIsOpen(event.currentTarget.open)}>
      <summary className="rounded-md px-3 py-2 hover:bg-accent-soft">{head}</summary>
      <div className="p-2 pt-0">
        {isOpen && (
          <VersionDiff
            workspaceId={workspaceId}
            before={change.change === "created" ? null : change.current_version_id}
            after={change.restored_version_id}
            path={change.path}
          />
        )}
      </div>
    </details>
  );
}

function Conflict({ workspaceId, conflict }: { workspaceId: string; conflict: Schema["UndoConflictEntry"] }) {
  const [isOpen, setIsOpen] = useState(false);
  const names = useNames(workspaceId);
  const head = (
    <span className="inline-flex w-[calc(100%-1.25rem)] flex-wrap items-center gap-2 align-middle">
      <span className="min-w-0 font-medium wrap-anywhere">{escapedLine(conflict.path)}</span>
      <span>{conflict.reason}</span>
      {conflict.theirs && (
        <span>
          Last changed by {nameOfAuthor(names, conflict.theirs.author)},{" "}
          <RelativeTime time={conflict.theirs.created_at} />.
        </span>
      )}
    </span>
  );
  if (conflict.theirs === null) return <div className="px-3 py-2">{head}</div>;
  return (
    <details onToggle={(event) => setIsOpen(event.currentTarget.open)}>
      <summary className="rounded-md px-3 py-2">{head}</summary>
      <div className="space-y-1 p-2 pt-0">
        <p>Your version and the newer version. Both are kept.</p>
        {isOpen && (
          <VersionDiff
            workspaceId={workspaceId}
            before={conflict.ours.deleted ? null : conflict.ours.version_id}
            after={conflict.theirs.deleted ? null : conflict.theirs.version_id}
            path={conflict.path}
          />
        )}
      </div>
    </details>
  );
}

interface VersionDiffProps {
  workspaceId: string;
  /** Version ids; null where the file does not exist. */
  before: string | null;
  after: string | null;
  path: string;
}

function VersionDiff({ workspaceId, before, after, path }: VersionDiffProps) {
  const texts = useQuery({
    queryKey: ["between", workspaceId, before, after],
    queryFn: () => Promise.all([textOf(workspaceId, before), textOf(workspaceId, after)]),
    staleTime: Number.POSITIVE_INFINITY,
  });
  if (texts.isPending) return <Loading what="both versions" />;
  if (texts.error) return <ErrorNote error={texts.error} />;
  const [old, now] = texts.data;
  if (old === null || now === null) return <p className="text-muted">The content is binary or was not kept.</p>;
  return (
    <Suspense fallback={<Loading what="diff" />}>
      <TextDiff before={old} after={now} path={path} label={`Changes to ${escapedLine(path)}`} />
    </Suspense>
  );
}

async function textOf(workspaceId: string, versionId: string | null): Promise<string | null> {
  if (versionId === null) return "";
  const { content, deleted } = await callTool(workspaceId, "file_version", { version_id: versionId });
  if (deleted) return "";
  return asText(content);
}
