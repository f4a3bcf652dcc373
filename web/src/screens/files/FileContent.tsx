/** What a file holds: to read, and to write. */
import { lazy, Suspense, useState } from "react";
import { asText, isBinary } from "../../api/content";
import { Button } from "../../parts/Button";
import { Empty } from "../../parts/Empty";
import { ErrorNote } from "../../parts/ErrorNote";
import { Loading } from "../../parts/Loading";
import { type Draft, isChanged, useDrafts } from "./drafts";
import { nameOf, useContent, useSave } from "./files";

const TextView = lazy(() => import("../../editor/TextView"));
const TextDiff = lazy(() => import("../../editor/TextDiff"));

interface Props {
  workspaceId: string;
  path: string;
  line: number | undefined;
}

export function FileContent({ workspaceId, path, line }: Props) {
  const read = useContent(workspaceId, path);
  const file = `${workspaceId}:${path}`;
  const draft = useDrafts((drafts) => drafts.of[file]);
  const { keep, drop } = useDrafts.getState();
  if (read.isPending) return <Loading what={path} />;
  if (read.error)
    return (
      <div className="p-4">
        <ErrorNote error={read.error} />
      </div>
    );
  const { content, hash } = read.data;
  if (isBinary(content)) return <Empty title="This is not text">It can only be read by programs.</Empty>;
  const text = asText(content) ?? "";
  if (draft !== undefined)
    return (
      <Editor
        workspaceId={workspaceId}
        path={path}
        draft={draft}
        now={{ content, hash }}
        onChange={(changed) => keep(file, changed)}
        onEnd={() => drop(file)}
      />
    );
  return (
    <div className="flex h-full min-h-0 flex-col">
      <div className="border-b border-line bg-sunken px-3 py-1.5">
        <Button small onClick={() => keep(file, { text, base: { content, hash } })}>
          Edit
        </Button>
      </div>
      <div className="min-h-0 grow">
        <Suspense fallback={<Loading what={nameOf(path)} />}>
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
  /** What stands there now, which others may have changed since the draft was begun. */
  now: Draft["base"];
  onChange: (draft: Draft) => void;
  onEnd: () => void;
}

function Editor({ workspaceId, path, draft, now, onChange, onEnd }: EditorProps) {
  // The editor keeps the text itself; it is given one only to begin with.
  const [begun] = useState(draft.text);
  const save = useSave(workspaceId);
  const hasChanged = isChanged(draft);
  const isOvertaken = now.hash !== draft.base.hash;

  function store(base: Draft["base"]) {
    if (!save.isPending) save.mutate({ path, base, text: draft.text }, { onSuccess: onEnd });
  }

  return (
    <div className="flex h-full min-h-0 flex-col">
      <div className="flex flex-wrap items-center gap-2 border-b border-line bg-sunken px-3 py-1.5">
        <Button small look="primary" busy={save.isPending} disabled={!hasChanged} onClick={() => store(draft.base)}>
          Save
        </Button>
        <Button small onClick={onEnd}>
          Cancel
        </Button>
        <span className="text-xs text-muted" role="status">
          {hasChanged ? "Not saved yet" : "Nothing changed yet"}
        </span>
      </div>
      {(save.error || isOvertaken) && (
        <div className="max-h-1/2 space-y-2 overflow-y-auto border-b border-line p-2" tabIndex={0}>
          <ErrorNote error={save.error} />
          {isOvertaken && <Overtaken path={path} theirs={now} mine={draft.text} onSave={() => store(now)} />}
        </div>
      )}
      <div className="min-h-0 grow">
        <Suspense fallback={<Loading what={nameOf(path)} />}>
          <TextView
            text={begun}
            path={path}
            label={`Edit ${path}`}
            onChange={(text) => onChange({ ...draft, text })}
            onSave={() => hasChanged && store(draft.base)}
          />
        </Suspense>
      </div>
    </div>
  );
}

interface OvertakenProps {
  path: string;
  theirs: Draft["base"];
  mine: string;
  onSave: () => void;
}

function Overtaken({ path, theirs, mine, onSave }: OvertakenProps) {
  return (
    <section aria-label="What others wrote meanwhile" className="space-y-2">
      <div className="flex flex-wrap items-center gap-2">
        <p className="text-warn">Someone has changed this file since you began. Theirs, beside yours:</p>
        <span className="grow" />
        <Button small look="danger" onClick={onSave}>
          Save mine over it
        </Button>
      </div>
      <Suspense fallback={<Loading what="the difference" />}>
        <TextDiff before={asText(theirs.content) ?? ""} after={mine} path={path} label="Theirs beside yours" />
      </Suspense>
    </section>
  );
}
