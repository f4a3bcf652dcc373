/** The versions of a file, their diffs, and restore. */

import { RotateCcw } from "lucide-react";
import { lazy, Suspense, useState } from "react";
import { asText } from "../../api/content";
import { type Names, nameOfAuthor, useNames } from "../../api/names";
import { useMayWrite } from "../../app/workspaces";
import { Badge } from "../../components/Badge";
import { Button } from "../../components/Button";
import { Dialog } from "../../components/Dialog";
import { Empty } from "../../components/Empty";
import { ErrorNote } from "../../components/ErrorNote";
import { Loading } from "../../components/Loading";
import { RelativeTime } from "../../components/RelativeTime";
import { escapedLine } from "../../components/shownText";
import { type FileVersion, useFileId, useRestore, useVersion, useVersions } from "./files";

const TextDiff = lazy(() => import("../../editor/TextDiff"));

interface Props {
  workspaceId: string;
  path: string;
  /** The id of the shown version; null shows the newest. */
  chosen: string | null;
  onChoose: (versionId: string) => void;
}

export function FileHistory({ workspaceId, path, chosen, onChoose }: Props) {
  const id = useFileId(workspaceId, path);
  if (id.isPending) return <Loading what="history" />;
  if (id.error) return <ErrorNote error={id.error} />;
  if (id.data === null)
    return <Empty title="No history yet">This file is untracked. Its first change here starts its history.</Empty>;
  return <Versions workspaceId={workspaceId} fileId={id.data} chosen={chosen} onChoose={onChoose} />;
}

interface VersionsProps extends Omit<Props, "path"> {
  fileId: string;
}

function Versions({ workspaceId, fileId, chosen, onChoose }: VersionsProps) {
  const found = useVersions(workspaceId, fileId);
  const names = useNames(workspaceId);
  if (found.isPending) return <Loading what="history" />;
  if (found.error) return <ErrorNote error={found.error} />;
  const versions = found.data.versions;
  const at = Math.max(
    0,
    versions.findIndex((version) => version.version_id === chosen),
  );
  const version = versions[at];
  if (version === undefined) return <Empty title="No versions left" />;
  return (
    <div className="flex h-full min-h-0 flex-col lg:flex-row">
      <ol
        aria-label="Versions, newest first"
        className="max-h-48 shrink-0 overflow-y-auto border-b border-line bg-surface lg:max-h-none lg:w-64 lg:border-r lg:border-b-0"
      >
        {versions.map((one, index) => (
          <li key={one.version_id}>
            <button
              type="button"
              aria-current={index === at ? "true" : undefined}
              onClick={() => onChoose(one.version_id)}
              className="block w-full px-3 py-2 text-left -outline-offset-2 hover:bg-accent-soft aria-[current]:bg-accent-soft"
            >
              <span className="flex items-center gap-2">
                <span className="font-medium">Version {one.number}</span>
                {index === 0 && <Badge tone="accent">current</Badge>}
                {one.deleted && <Badge tone="bad">deleted</Badge>}
              </span>
              <span className="block text-xs text-muted">
                {nameOfAuthor(names, one.author)}, <RelativeTime time={one.created_at} />
              </span>
            </button>
          </li>
        ))}
      </ol>
      <div className="min-h-0 min-w-0 grow space-y-3 overflow-y-auto p-3" tabIndex={0}>
        <VersionHead workspaceId={workspaceId} version={version} isHead={at === 0} names={names} />
        <Difference workspaceId={workspaceId} before={versions[at + 1]} after={version} />
      </div>
    </div>
  );
}

interface HeadProps {
  workspaceId: string;
  version: FileVersion;
  isHead: boolean;
  names: Names;
}

function VersionHead({ workspaceId, version, isHead, names }: HeadProps) {
  const [isConfirming, setIsConfirming] = useState(false);
  const mayWrite = useMayWrite(workspaceId);
  const restore = useRestore(workspaceId);
  return (
    <div className="flex flex-wrap items-center gap-2">
      <h2 className="font-semibold">Changes in version {version.number}</h2>
      <span className="text-muted">
        by {nameOfAuthor(names, version.author)}, <RelativeTime time={version.created_at} />
      </span>
      <span className="grow" />
      {mayWrite && !isHead && !version.deleted && (
        <Button small onClick={() => setIsConfirming(true)}>
          <RotateCcw aria-hidden className="size-3.5" />
          Restore this version
        </Button>
      )}
      <Dialog
        title={`Restore version ${version.number}?`}
        isOpen={isConfirming}
        onClose={() => setIsConfirming(false)}
        foot={
          <>
            <Button onClick={() => setIsConfirming(false)}>Cancel</Button>
            <Button
              variant="primary"
              busy={restore.isPending}
              onClick={() =>
                restore.mutate(
                  { fileId: version.file_id, versionId: version.version_id },
                  { onSuccess: () => setIsConfirming(false) },
                )
              }
            >
              Restore
            </Button>
          </>
        }
      >
        <p>This version becomes the new current version. The version before it stays in the history.</p>
        <ErrorNote error={restore.error} />
      </Dialog>
    </div>
  );
}

interface DifferenceProps {
  workspaceId: string;
  before: FileVersion | undefined;
  after: FileVersion;
}

function Difference({ workspaceId, before, after }: DifferenceProps) {
  const old = useVersion(workspaceId, before?.version_id);
  const now = useVersion(workspaceId, after.version_id);
  if (now.isPending || (before !== undefined && old.isPending)) return <Loading what="both versions" />;
  if (now.error || old.error) return <ErrorNote error={now.error ?? old.error} />;
  const texts = [textOf(before, old.data?.content), textOf(after, now.data.content)] as const;
  if (texts[0] === null || texts[1] === null)
    return <Empty title="Nothing to compare">The content is binary or was not kept.</Empty>;
  return (
    <div className="space-y-2">
      {before !== undefined && before.path !== after.path && (
        <p className="text-muted">
          Moved from {escapedLine(before.path)} to {escapedLine(after.path)}.
        </p>
      )}
      {texts[0] === texts[1] ? (
        <p className="text-muted">The content did not change.</p>
      ) : (
        <Suspense fallback={<Loading what="diff" />}>
          <TextDiff
            before={texts[0]}
            after={texts[1]}
            path={after.path}
            label={`Version ${before?.number ?? 0} and version ${after.number}`}
          />
        </Suspense>
      )}
    </div>
  );
}

/** Returns an empty text before the first version and for a deletion. */
function textOf(version: FileVersion | undefined, content: unknown): string | null {
  return version === undefined || version.deleted ? "" : asText(content);
}
