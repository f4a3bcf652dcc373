/** Taking back what was done, or doing it again: what would become of each file is shown first. */
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { lazy, Suspense, useState } from "react";
import type { Schema } from "../api/client";
import { asText } from "../api/content";
import { nameOfAuthor, useNames } from "../api/names";
import { callTool } from "../api/tools";
import { Ago } from "./Ago";
import { Button } from "./Button";
import { ChangeBadge, type Deeds, filesOf, pathOf } from "./Changes";
import { Dialog } from "./Dialog";
import { Empty } from "./Empty";
import { ErrorNote } from "./ErrorNote";
import { Loading } from "./Loading";

const TextDiff = lazy(() => import("../editor/TextDiff"));

export interface Undoing {
  deeds: Deeds;
  /** What is taken back, as the title says it: `the call write`. */
  what: string;
  /** It is an undo that is taken back, so that what it took back stands again. */
  isRedo?: boolean;
}

interface Props {
  workspaceId: string;
  /** The session whose past tells of the undo. */
  sessionId?: string | undefined;
  /** Nothing: the dialog is shut. */
  undoing: Undoing | null;
  onClose: () => void;
  /** The call that undid, for a way back. */
  onDone?: (callId: string) => void;
}

export function UndoDialog({ workspaceId, sessionId, undoing, onClose, onDone }: Props) {
  const [force, setForce] = useState(false);
  const queries = useQueryClient();
  const preview = useQuery({
    queryKey: ["files", workspaceId, "undo", undoing?.deeds, force],
    // Not of the session: looking is no part of its past.
    queryFn: () => callTool(workspaceId, "undo", { ...undoing?.deeds, dry_run: true, force }),
    enabled: undoing !== null,
    staleTime: 0,
  });
  const undo = useMutation({
    mutationFn: () => callTool(workspaceId, "undo", { ...undoing?.deeds, force }, sessionId),
    onSuccess: async (done) => {
      await Promise.all([
        queries.invalidateQueries({ queryKey: ["files", workspaceId] }),
        queries.invalidateQueries({ queryKey: ["past", workspaceId] }),
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

  const verb = undoing?.isRedo ? "Redo" : "Undo";
  const count = preview.data?.changes.length ?? 0;
  return (
    <Dialog
      title={`${verb} ${undoing?.what ?? ""}`}
      isOpen={undoing !== null}
      onClose={close}
      wide
      foot={
        <>
          <Button onClick={close}>Leave it</Button>
          <Button look="primary" busy={undo.isPending} disabled={count === 0} onClick={() => undo.mutate()}>
            {verb} {filesOf(count)}
          </Button>
        </>
      }
    >
      <div className="space-y-3">
        {preview.isPending && <Loading what="what would change" />}
        <ErrorNote error={preview.error ?? undo.error} />
        {preview.data && <Preview workspaceId={workspaceId} found={preview.data} />}
        {preview.data && (force || preview.data.conflicts.some((clash) => clash.theirs !== null)) && (
          <label className="flex items-start gap-2">
            <input
              type="checkbox"
              className="mt-1"
              checked={force}
              onChange={(event) => setForce(event.target.checked)}
            />
            <span>Also files that others have changed since. What they wrote stays in the history.</span>
          </label>
        )}
      </div>
    </Dialog>
  );
}

function Preview({ workspaceId, found }: { workspaceId: string; found: Schema["Undone"] }) {
  return (
    <>
      {found.changes.length === 0 && found.conflicts.length === 0 && (
        <Empty title="There is nothing to take back">The files are as they would be.</Empty>
      )}
      {found.changes.length > 0 && (
        <section aria-label="What would change" className="space-y-1.5">
          <h3 className="font-medium">{filesOf(found.changes.length)} would change</h3>
          <ul className="space-y-1.5">
            {found.changes.map((one) => (
              <li key={one.file_id} className="rounded-md border border-line">
                <Reversal workspaceId={workspaceId} change={one} />
              </li>
            ))}
          </ul>
        </section>
      )}
      {found.conflicts.length > 0 && (
        <section aria-label="What is left alone" className="space-y-1.5">
          <h3 className="font-medium text-warn">{filesOf(found.conflicts.length)} would be left alone</h3>
          <ul className="space-y-1.5">
            {found.conflicts.map((one) => (
              <li key={one.ours.version_id} className="rounded-md border border-warn/50 bg-warn-soft">
                <Conflict workspaceId={workspaceId} clash={one} />
              </li>
            ))}
          </ul>
        </section>
      )}
    </>
  );
}

const WORDS: Record<Schema["Reversed"]["change"], string> = {
  made: "comes back",
  deleted: "goes",
  changed: "becomes what it was",
  moved: "moves back",
};

function Reversal({ workspaceId, change }: { workspaceId: string; change: Schema["Reversed"] }) {
  const [isOpen, setIsOpen] = useState(false);
  const head = (
    <span className="inline-flex w-[calc(100%-1.25rem)] flex-wrap items-center gap-2 align-middle">
      <ChangeBadge change={change.change} />
      <span className="min-w-0 wrap-anywhere">{pathOf(change)}</span>
      <span className="text-muted">{WORDS[change.change]}</span>
    </span>
  );
  if (change.kind !== "file") return <div className="px-3 py-2">{head}</div>;
  return (
    <details onToggle={(event) => setIsOpen(event.currentTarget.open)}>
      <summary className="rounded-md px-3 py-2 hover:bg-accent-soft">{head}</summary>
      <div className="p-2 pt-0">
        {isOpen && (
          <Between
            workspaceId={workspaceId}
            before={change.change === "made" ? null : change.version_now}
            after={change.version_then}
            path={change.path}
          />
        )}
      </div>
    </details>
  );
}

function Conflict({ workspaceId, clash }: { workspaceId: string; clash: Schema["Clash"] }) {
  const [isOpen, setIsOpen] = useState(false);
  const names = useNames(workspaceId);
  const head = (
    <span className="inline-flex w-[calc(100%-1.25rem)] flex-wrap items-center gap-2 align-middle">
      <span className="min-w-0 font-medium wrap-anywhere">{clash.path}</span>
      <span>{clash.reason}</span>
      {clash.theirs && (
        <span>
          Last by {nameOfAuthor(names, clash.theirs.author)}, <Ago time={clash.theirs.created_at} />.
        </span>
      )}
    </span>
  );
  if (clash.theirs === null) return <div className="px-3 py-2">{head}</div>;
  return (
    <details onToggle={(event) => setIsOpen(event.currentTarget.open)}>
      <summary className="rounded-md px-3 py-2">{head}</summary>
      <div className="space-y-1 p-2 pt-0">
        <p>What was to be taken back, beside what others made of it. Both are kept.</p>
        {isOpen && (
          <Between
            workspaceId={workspaceId}
            before={clash.ours.deleted ? null : clash.ours.version_id}
            after={clash.theirs.deleted ? null : clash.theirs.version_id}
            path={clash.path}
          />
        )}
      </div>
    </details>
  );
}

interface BetweenProps {
  workspaceId: string;
  /** Versions; null where there is no file. */
  before: string | null;
  after: string | null;
  path: string;
}

function Between({ workspaceId, before, after, path }: BetweenProps) {
  const texts = useQuery({
    queryKey: ["between", workspaceId, before, after],
    queryFn: () => Promise.all([textOf(workspaceId, before), textOf(workspaceId, after)]),
    staleTime: Number.POSITIVE_INFINITY,
  });
  if (texts.isPending) return <Loading what="both versions" />;
  if (texts.error) return <ErrorNote error={texts.error} />;
  const [old, now] = texts.data;
  if (old === null || now === null) return <p className="text-muted">The content is not text, or is not kept.</p>;
  return (
    <Suspense fallback={<Loading what="the difference" />}>
      <TextDiff before={old} after={now} path={path} label={`What would become of ${path}`} />
    </Suspense>
  );
}

async function textOf(workspaceId: string, versionId: string | null): Promise<string | null> {
  if (versionId === null) return "";
  const { content, deleted } = await callTool(workspaceId, "file_version", { version_id: versionId });
  if (deleted) return "";
  return asText(content);
}
