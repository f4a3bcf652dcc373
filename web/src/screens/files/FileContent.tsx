/** The content of a file, to read and to edit. */
import { lazy, Suspense, useState } from "react";
import { asText, isBinary } from "../../api/content";
import { Button } from "../../components/Button";
import { Empty } from "../../components/Empty";
import { ErrorNote } from "../../components/ErrorNote";
import { SkeletonLines } from "../../components/Skeleton";
import { type Draft, isChanged, useDrafts } from "./drafts";
import { nameOf, useContent, useSave } from "./files";

const TextView = lazy(() => import("../../editor/TextView"));
const TextDiff = lazy(() => import("../../editor/TextDiff"));

interface Props {
  workspaceId: string;
  path: string;
  line: number | undefined;
  /** A session or an agent, or the person is a viewer. */
  isReadOnly: boolean;
}

export function FileContent({ workspaceId, path, line, isReadOnly }: Props) {
  const read = useContent(workspaceId, path);
  const file = `${workspaceId}:${path}`;
  const draft = useDrafts((drafts) => drafts.of[file]);
  const { keep, drop } = useDrafts.getState();
  /** What gets the focus when the editor opens or closes. */
  const [focused, setFocused] = useState<"editor" | "button" | null>(null);
  if (read.isPending) return <SkeletonLines what={path} />;
  if (read.error)
    return (
      <div className="p-4">
        <ErrorNote error={read.error} />
      </div>
    );
  const { content, hash } = read.data;
  if (isBinary(content)) return <Empty title="Binary file">This file cannot be shown as text.</Empty>;
  const text = asText(content) ?? "";
  if (draft !== undefined)
    return (
      <Editor
        workspaceId={workspaceId}
        path={path}
        draft={draft}
        now={{ content, hash }}
        onChange={(changed) => keep(file, changed)}
        hasFocus={focused === "editor"}
        onEnd={() => {
          setFocused("button");
          drop(file);
        }}
      />
    );
  return (
    <div className="flex h-full min-h-0 flex-col">
      {!isReadOnly && (
        <div className="border-b border-line bg-sunken px-3 py-2">
          <Button
            small
            ref={(button) => {
              if (focused === "button") button?.focus();
            }}
            onClick={() => {
              setFocused("editor");
              keep(file, { text, base: { content, hash } });
            }}
          >
            Edit
          </Button>
        </div>
      )}
      <div className="min-h-0 grow">
        <Suspense fallback={<SkeletonLines what={nameOf(path)} />}>
          <TextView text={text} path={path} label={`Content of ${path}`} line={line} />
        </Suspense>
      </div>
    </div>
  );
}

interface EditorProps {
  workspaceId: string;
  path: string;
  draft: Draft;
  /** The current content, which others may have changed since the draft was started. */
  now: Draft["base"];
  hasFocus: boolean;
  onChange: (draft: Draft) => void;
  onEnd: () => void;
}

function Editor({ workspaceId, path, draft, now, hasFocus, onChange, onEnd }: EditorProps) {
  // The editor keeps its own text; this is only the initial value.
  const [initialText] = useState(draft.text);
  const save = useSave(workspaceId);
  const hasChanged = isChanged(draft);
  const hasConflict = now.hash !== draft.base.hash;

  function store(base: Draft["base"]) {
    if (!save.isPending) save.mutate({ path, base, text: draft.text }, { onSuccess: onEnd });
  }

  return (
    <div className="flex h-full min-h-0 flex-col">
      <div className="flex flex-wrap items-center gap-2 border-b border-line bg-sunken px-3 py-2">
        <Button small variant="primary" busy={save.isPending} disabled={!hasChanged} onClick={() => store(draft.base)}>
          Save
        </Button>
        <Button small onClick={onEnd}>
          Cancel
        </Button>
        <span className="text-xs text-muted" role="status">
          {hasChanged ? "Unsaved changes" : "No changes"}
        </span>
      </div>
      {(save.error || hasConflict) && (
        <div className="max-h-1/2 space-y-2 overflow-y-auto border-b border-line p-2" tabIndex={0}>
          <ErrorNote error={save.error} />
          {hasConflict && <EditConflict path={path} theirs={now} mine={draft.text} onSave={() => store(now)} />}
        </div>
      )}
      <div className="min-h-0 grow">
        <Suspense fallback={<SkeletonLines what={nameOf(path)} />}>
          <TextView
            text={initialText}
            path={path}
            label={`Edit ${path}`}
            hasFocus={hasFocus}
            onChange={(text) => onChange({ ...draft, text })}
            onSave={() => hasChanged && store(draft.base)}
          />
        </Suspense>
      </div>
    </div>
  );
}

interface EditConflictProps {
  path: string;
  theirs: Draft["base"];
  mine: string;
  onSave: () => void;
}

function EditConflict({ path, theirs, mine, onSave }: EditConflictProps) {
  return (
    <section aria-label="Edit conflict" className="space-y-2">
      <div className="flex flex-wrap items-center gap-2">
        <p className="text-warn">This file changed while you were editing. Their version and yours:</p>
        <span className="grow" />
        <Button small variant="danger" onClick={onSave}>
          Overwrite
        </Button>
      </div>
      <Suspense fallback={<SkeletonLines what="diff" />}>
        <TextDiff before={asText(theirs.content) ?? ""} after={mine} path={path} label="Their version and yours" />
      </Suspense>
    </section>
  );
}
