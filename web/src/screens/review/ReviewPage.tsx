/** The page of a review: a bar with the decision, the tree of files, and the files with their changes. */
import { ArrowLeft, Files, Keyboard, Send } from "lucide-react";
import { type ReactNode, startTransition, useCallback, useEffect, useRef, useState } from "react";
import { Link } from "wouter";
import { useShortcutList } from "../../app/shortcuts";
import { useMayWrite } from "../../app/workspaces";
import { Button, IconButton } from "../../components/Button";
import { ErrorNote } from "../../components/ErrorNote";
import { grouped } from "../../components/shownText";
import { useWidth } from "../../components/useWidth";
import { anchorOf, type FileActions, FileReview, firstChange } from "./FileReview";
import { Counts, FileTree } from "./FileTree";
import { keyOf } from "./fileRows";
import { NearArea } from "./Near";
import type { ReviewFile } from "./reviewFiles";
import { type FileKey, type PageKey, type Place, startOf, useReviewKeys } from "./reviewKeys";
import { useComments } from "./useComments";
import { usePlace } from "./usePlace";
import { useViewed, type Viewed } from "./viewed";

/** The width from which two columns fit, in pixels. */
const ROOM = 1_000;
const NO_MARKS: ReadonlySet<string> = new Set();

type Layout = "auto" | "unified" | "split";

/** What a person can do with a file. */
export interface FileControl {
  buttons: (file: ReviewFile) => ReactNode;
  keys: readonly FileKey[];
  pageKeys: readonly PageKey[];
}

const NO_KEYS: readonly never[] = [];

interface Props extends FileActions {
  workspaceId: string;
  /** Whom comments are sent to. */
  sessionId: string | null;
  /** Names the review for comments that are not sent. */
  name: string;
  title: ReactNode;
  back: { href: string; label: string };
  files: readonly ReviewFile[];
  /** The ids of the hunks that are marked. */
  marked?: (file: ReviewFile) => ReadonlySet<string>;
  control?: FileControl;
  /** The buttons that decide about all; which files are viewed is known here. */
  decision: (viewed: Viewed) => ReactNode;
  /** Stays in sight below the files: what the last decision did. */
  note?: ReactNode;
  /** Above the files: what is decided about, and errors. */
  children?: ReactNode;
}

export function ReviewPage({ workspaceId, sessionId, name, title, back, files, marked, control, ...props }: Props) {
  const { decision, onMark, read, more, note, children } = props;
  const [area, setArea] = useState<HTMLElement | null>(null);
  const areaRef = useRef<HTMLElement>(null);
  const width = useWidth(areaRef);
  const [layout, setLayout] = useState<Layout>("auto");
  const [isTreeOpen, setIsTreeOpen] = useState(false);
  const viewed = useViewed(files);
  const mayWrite = useMayWrite(workspaceId);
  const comments = useComments(workspaceId, sessionId, name);
  const [folded, setFolded] = useState<ReadonlyMap<string, boolean>>(new Map());
  const [openLine, setOpenLine] = useState<{ path: string; key: string } | null>(null);
  const filter = useRef<HTMLInputElement>(null);
  const { place, focused, go, from, target } = usePlace(area, files);
  /** Where the focus was when the comment's field took it. */
  const commentedFrom = useRef<Place | null>(null);
  const current = place?.path ?? null;
  const isSplit = layout === "split" || (layout === "auto" && width >= ROOM);
  const showShortcuts = useShortcutList((list) => list.show);
  const unsent = comments.all.filter(({ isSent }) => !isSent);

  const isFolded = (file: ReviewFile) => folded.get(file.path) ?? viewed.has(file);
  const show = (file: ReviewFile | undefined) => {
    if (file === undefined) return;
    setIsTreeOpen(false);
    go({ path: file.path, hunk: null });
    go(startOf(file, isFolded(file)));
  };
  const fold = useCallback(
    (file: ReviewFile, isFolded: boolean) => setFolded((before) => new Map([...before, [file.path, isFolded]])),
    [],
  );
  const view = useStable((file: ReviewFile, isViewed: boolean) => {
    viewed.set(file, isViewed);
    fold(file, isViewed);
    // The header stays in sight when the lines above it go.
    if (isViewed) requestAnimationFrame(() => keepInSight(area, file));
  });
  const openComment = useStable((file: ReviewFile, key: string | null) => {
    setOpenLine(key === null ? null : { path: file.path, key });
    if (key !== null) commentedFrom.current = focused;
    // The field that had the focus is gone.
    else if (commentedFrom.current?.path === file.path) go(commentedFrom.current);
  });
  const stableMark = useStable((file: ReviewFile, hunk: ReviewFile["hunks"][number]) => onMark?.(file, hunk));
  const stableRead = useStable(read);
  const stableMore = useStable(async (file: ReviewFile) => more?.(file));

  useReviewKeys({
    from,
    target,
    files,
    isFolded,
    go,
    view: (file) => {
      const isViewed = !viewed.has(file);
      view(file, isViewed);
      if (isViewed) show(files[files.indexOf(file) + 1]);
    },
    comment: (file, hunk) => {
      if (!mayWrite) return;
      const changed = hunk ?? file.hunks[0];
      const line = changed && firstChange(changed);
      if (line === undefined) return;
      fold(file, false);
      openComment(file, keyOf(line));
    },
    send: () => unsent.length > 0 && comments.canSend && comments.send(unsent),
    filter,
    decide: control?.keys ?? NO_KEYS,
    decideAll: control?.pageKeys ?? NO_KEYS,
    viewed,
  });
  useNextWhenDecided(files, place, (file) => {
    const { activeElement } = document;
    // A person who types elsewhere keeps the focus.
    const isFree = activeElement === null || activeElement === document.body || area?.contains(activeElement) === true;
    go(startOf(file, isFolded(file)), isFree);
  });

  const added = files.reduce((sum, file) => sum + (file.added ?? 0), 0);
  const removed = files.reduce((sum, file) => sum + (file.removed ?? 0), 0);
  const uncounted = files.filter((file) => file.added === null && (file.flaw !== null || file.rest !== null)).length;
  return (
    <div className="flex h-full min-h-0 flex-col">
      <header className="flex shrink-0 flex-wrap items-center gap-x-3 gap-y-2 border-b border-line bg-surface px-3 py-2">
        <Link
          href={back.href}
          aria-label={back.label}
          title={back.label}
          className="rounded-md p-2 hover:bg-accent-soft"
        >
          <ArrowLeft aria-hidden className="size-4" />
        </Link>
        <div className="min-w-0 grow basis-40">
          <h1 className="truncate text-base font-semibold">{title}</h1>
          <p className="flex flex-wrap items-baseline gap-x-2 text-xs text-muted" role="status">
            <span>{changedFiles(files.length)}</span>
            {added + removed > 0 && <Counts added={added} removed={removed} />}
            {uncounted > 0 && (
              <span className="text-warn">
                without {uncounted === 1 ? "1 file" : `${grouped(uncounted)} files`} that could not be shown or loaded
              </span>
            )}
            {files.length > 0 && (
              <span>
                {viewed.count} of {files.length} viewed
              </span>
            )}
          </p>
        </div>
        <div className="flex flex-wrap items-center gap-2">
          {files.length > 0 && (
            <>
              <Button small className="lg:hidden" aria-expanded={isTreeOpen} onClick={() => setIsTreeOpen(!isTreeOpen)}>
                <Files aria-hidden className="size-3.5" /> Files
              </Button>
              <LayoutChoice
                layout={isSplit ? "split" : "unified"}
                onChange={(chosen) => startTransition(() => setLayout(chosen))}
              />
            </>
          )}
          {unsent.length > 0 && (
            <Button small busy={comments.isSending} disabled={!comments.canSend} onClick={() => comments.send(unsent)}>
              <Send aria-hidden className="size-3.5" />
              {unsent.length === 1 ? "Send 1 comment" : `Send ${unsent.length} comments`}
            </Button>
          )}
          <IconButton label="Keyboard shortcuts" className="max-sm:hidden" onClick={showShortcuts}>
            <Keyboard aria-hidden className="size-4" />
          </IconButton>
          {decision(viewed)}
        </div>
      </header>
      <div className="relative flex min-h-0 grow">
        {files.length > 0 && (
          <aside
            aria-label="Files of the review"
            className={`${isTreeOpen ? "absolute inset-y-0 left-0 z-20 flex w-72 max-w-[85%] shadow-card" : "hidden"} flex-col border-r border-line bg-surface lg:static lg:flex lg:w-64 lg:max-w-none lg:shrink-0 lg:shadow-none xl:w-72`}
          >
            <FileTree
              files={files}
              current={current}
              isViewed={viewed.has}
              comments={(path) => comments.all.filter((one) => one.path === path).length}
              onSelect={show}
              filterRef={filter}
            />
          </aside>
        )}
        <section
          ref={(element) => {
            areaRef.current = element;
            setArea(element);
          }}
          aria-label="Changes"
          tabIndex={0}
          className="min-w-0 grow overflow-x-hidden overflow-y-auto px-2 pb-[50vh] -outline-offset-2 sm:px-3"
        >
          <NearArea root={area}>
            <div className="space-y-3 py-3">
              {comments.error != null && <ErrorNote error={comments.error} />}
              {children}
              {files.map((file) => (
                <FileReview
                  key={file.path}
                  workspaceId={workspaceId}
                  file={file}
                  isCurrent={file.path === focused?.path}
                  currentHunk={file.path === focused?.path ? focused.hunk : null}
                  isFolded={isFolded(file)}
                  onFold={fold}
                  isViewed={viewed.has(file)}
                  onViewed={view}
                  isSplit={isSplit && hasSides(file)}
                  width={width}
                  marked={marked?.(file) ?? NO_MARKS}
                  comments={comments}
                  openLine={openLine?.path === file.path ? openLine.key : null}
                  onOpenLine={mayWrite ? openComment : null}
                  {...(onMark ? { onMark: stableMark } : {})}
                  read={stableRead}
                  {...(more ? { more: stableMore } : {})}
                >
                  {control?.buttons(file)}
                </FileReview>
              ))}
            </div>
          </NearArea>
        </section>
        {note && <div className="pointer-events-none absolute inset-x-2 bottom-3 z-20 flex justify-center">{note}</div>}
      </div>
    </div>
  );
}

/** A file with only added or only removed lines has no second column. */
function hasSides(file: ReviewFile): boolean {
  return file.change !== "created" && file.change !== "deleted";
}

function changedFiles(count: number): string {
  if (count === 0) return "No files changed";
  return count === 1 ? "1 file changed" : `${grouped(count)} files changed`;
}

function LayoutChoice({ layout, onChange }: { layout: "unified" | "split"; onChange: (layout: Layout) => void }) {
  return (
    <fieldset className="hidden rounded-md border border-line-control text-xs sm:flex" aria-label="Layout">
      {(["unified", "split"] as const).map((one) => (
        <button
          key={one}
          type="button"
          aria-pressed={one === layout}
          onClick={() => onChange(one)}
          className="min-h-6.5 px-2 text-muted capitalize first:rounded-l-sm last:rounded-r-sm hover:text-ink aria-pressed:bg-accent-soft aria-pressed:font-medium aria-pressed:text-accent"
        >
          {one}
        </button>
      ))}
    </fieldset>
  );
}

/** When the current file is decided, the next one becomes the current one. */
function useNextWhenDecided(files: readonly ReviewFile[], place: Place | null, go: (file: ReviewFile) => void): void {
  const before = useRef({ files, path: place?.path });
  useEffect(() => {
    const { files: earlier, path } = before.current;
    before.current = { files, path: place?.path };
    if (earlier === files || files.some((one) => one.path === path)) return;
    const left = new Map(files.map((one) => [one.path, one]));
    const next = earlier.slice(earlier.findIndex((one) => one.path === path) + 1).find((one) => left.has(one.path));
    const file = (next && left.get(next.path)) ?? files.at(-1);
    if (file !== undefined) go(file);
  });
}

function keepInSight(area: HTMLElement | null, file: ReviewFile): void {
  const article = document.getElementById(anchorOf(file.path));
  if (area === null || article === null) return;
  if (article.getBoundingClientRect().top < area.getBoundingClientRect().top)
    article.scrollIntoView({ block: "start" });
}

/** Returns a function that stays the same and calls the latest one. */
function useStable<Arguments extends unknown[], Result>(latest: (...args: Arguments) => Result) {
  const now = useRef(latest);
  now.current = latest;
  return useCallback((...args: Arguments) => now.current(...args), []);
}
