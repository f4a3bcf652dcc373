/** The page of a review: a bar with the decision, the tree of files, and the files with their changes. */
import { ArrowLeft, Files, Send } from "lucide-react";
import { type ReactNode, startTransition, useCallback, useEffect, useMemo, useRef, useState } from "react";
import { Link } from "wouter";
import { type Shortcut, useShortcuts } from "../../app/shortcuts";
import { Button } from "../../components/Button";
import { ErrorNote } from "../../components/ErrorNote";
import { grouped } from "../../components/shownText";
import { useWidth } from "../../components/useWidth";
import { anchorOf, type FileActions, FileReview } from "./FileReview";
import { Counts, FileTree } from "./FileTree";
import { keyOf } from "./fileRows";
import { NearArea } from "./Near";
import type { ReviewFile } from "./reviewFiles";
import { useComments } from "./useComments";
import { useViewed } from "./viewed";

/** The width from which two columns fit, in pixels. */
const ROOM = 1_000;
const NO_MARKS: ReadonlySet<string> = new Set();

type Layout = "auto" | "unified" | "split";

/** What a person can do with a file. */
export interface FileControl {
  buttons: (file: ReviewFile) => ReactNode;
  accept: (file: ReviewFile) => void;
  reject: (file: ReviewFile) => void;
  edit?: (file: ReviewFile) => void;
}

interface Props extends FileActions {
  workspaceId: string;
  /** Whom comments are sent to. */
  sessionId: string | null;
  /** Names the review for comments that are not sent. */
  name: string;
  title: ReactNode;
  back: { href: string; label: string };
  files: readonly ReviewFile[];
  marked?: ReadonlyMap<string, ReadonlySet<string>>;
  control?: FileControl;
  /** The buttons that decide about all. */
  decision: ReactNode;
  /** Above the files: what is decided about, and errors. */
  children?: ReactNode;
}

export function ReviewPage({ workspaceId, sessionId, name, title, back, files, marked, control, ...props }: Props) {
  const { decision, onMark, read, children } = props;
  const [area, setArea] = useState<HTMLElement | null>(null);
  const areaRef = useRef<HTMLElement>(null);
  const width = useWidth(areaRef);
  const [layout, setLayout] = useState<Layout>("auto");
  const [isTreeOpen, setIsTreeOpen] = useState(false);
  const viewed = useViewed(files);
  const comments = useComments(workspaceId, sessionId, name);
  const [folded, setFolded] = useState<ReadonlyMap<string, boolean>>(new Map());
  const [openLine, setOpenLine] = useState<{ path: string; key: string } | null>(null);
  const { current, setCurrent } = useCurrentFile(area, files);
  const isSplit = layout === "split" || (layout === "auto" && width >= ROOM);
  const unsent = comments.all.filter(({ isSent }) => !isSent);

  const show = useCallback(
    (file: ReviewFile | undefined) => {
      if (file === undefined) return;
      setCurrent(file.path);
      setIsTreeOpen(false);
      document.getElementById(anchorOf(file))?.scrollIntoView({ block: "start" });
    },
    [setCurrent],
  );
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
  const openComment = useCallback(
    (file: ReviewFile, key: string | null) => setOpenLine(key === null ? null : { path: file.path, key }),
    [],
  );
  const stableMark = useStable((file: ReviewFile, hunk: ReviewFile["hunks"][number]) => onMark?.(file, hunk));
  const stableRead = useStable(read);

  useReviewKeys({
    step: (by) => {
      const at = files.findIndex(({ path }) => path === current);
      show(files[Math.min(files.length - 1, Math.max(0, at + by))]);
    },
    hunk: (by) => showHunk(area, by),
    view: () => {
      const at = files.findIndex(({ path }) => path === current);
      const file = files[at];
      if (file === undefined) return;
      const isViewed = !viewed.has(file);
      view(file, isViewed);
      if (isViewed) show(files[at + 1]);
    },
    comment: () => {
      const file = files.find(({ path }) => path === current);
      const changed = file?.hunks.flatMap(({ lines }) => lines).find(({ kind }) => kind === "new" || kind === "gone");
      if (file && changed) {
        fold(file, false);
        openComment(file, keyOf(changed));
      }
    },
    control,
    current: files.find(({ path }) => path === current),
  });

  const added = files.reduce((sum, file) => sum + (file.added ?? 0), 0);
  const removed = files.reduce((sum, file) => sum + (file.removed ?? 0), 0);
  return (
    <div className="flex h-full min-h-0 flex-col">
      <header className="flex shrink-0 flex-wrap items-center gap-x-3 gap-y-2 border-b border-line bg-surface px-3 py-2">
        <Link
          href={back.href}
          aria-label={back.label}
          title={back.label}
          className="rounded-md p-1.5 hover:bg-accent-soft"
        >
          <ArrowLeft aria-hidden className="size-4" />
        </Link>
        <div className="min-w-0 grow basis-40">
          <h1 className="truncate text-[15px] leading-5 font-semibold">{title}</h1>
          <p className="flex flex-wrap items-baseline gap-x-2 text-xs text-muted" role="status">
            <span>{files.length === 1 ? "1 file" : `${grouped(files.length)} files`} changed</span>
            {added + removed > 0 && <Counts added={added} removed={removed} />}
            <span>
              {viewed.count} of {files.length} viewed
            </span>
          </p>
        </div>
        <div className="flex flex-wrap items-center gap-2">
          <Button small className="lg:hidden" aria-expanded={isTreeOpen} onClick={() => setIsTreeOpen(!isTreeOpen)}>
            <Files aria-hidden className="size-3.5" /> Files
          </Button>
          <LayoutChoice
            layout={isSplit ? "split" : "unified"}
            onChange={(chosen) => startTransition(() => setLayout(chosen))}
          />
          {unsent.length > 0 && (
            <Button small busy={comments.isSending} disabled={!comments.canSend} onClick={() => comments.send(unsent)}>
              <Send aria-hidden className="size-3.5" />
              {unsent.length === 1 ? "Send 1 comment" : `Send ${unsent.length} comments`}
            </Button>
          )}
          {decision}
        </div>
      </header>
      <div className="relative flex min-h-0 grow">
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
          />
        </aside>
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
                  file={file}
                  isCurrent={file.path === current}
                  isFolded={folded.get(file.path) ?? viewed.has(file)}
                  onFold={fold}
                  isViewed={viewed.has(file)}
                  onViewed={view}
                  isSplit={isSplit && hasSides(file)}
                  width={width}
                  marked={marked?.get(file.path) ?? NO_MARKS}
                  comments={comments}
                  openLine={openLine?.path === file.path ? openLine.key : null}
                  onOpenLine={openComment}
                  {...(onMark ? { onMark: stableMark } : {})}
                  read={stableRead}
                >
                  {control?.buttons(file)}
                </FileReview>
              ))}
            </div>
          </NearArea>
        </section>
      </div>
    </div>
  );
}

/** A file with only added or only removed lines has no second column. */
function hasSides(file: ReviewFile): boolean {
  return file.change !== "created" && file.change !== "deleted";
}

function LayoutChoice({ layout, onChange }: { layout: "unified" | "split"; onChange: (layout: Layout) => void }) {
  return (
    <fieldset className="hidden rounded-md border border-line-strong text-xs sm:flex" aria-label="Layout">
      {(["unified", "split"] as const).map((one) => (
        <button
          key={one}
          type="button"
          aria-pressed={one === layout}
          onClick={() => onChange(one)}
          className="min-h-6.5 px-2 text-muted capitalize first:rounded-l-[5px] last:rounded-r-[5px] hover:text-ink aria-pressed:bg-accent-soft aria-pressed:font-medium aria-pressed:text-accent"
        >
          {one}
        </button>
      ))}
    </fieldset>
  );
}

/** The file at the top of the area. */
function useCurrentFile(area: HTMLElement | null, files: readonly ReviewFile[]) {
  const [current, setCurrent] = useState<string | null>(null);
  /** A file near the end cannot reach the top; it stays current until the person scrolls. */
  const chosenAt = useRef<number | null>(null);
  const first = files[0]?.path ?? null;
  useEffect(() => {
    if (area === null) return;
    let frame = 0;
    const find = () => {
      frame = 0;
      if (chosenAt.current !== null && Math.abs(area.scrollTop - chosenAt.current) < 4) return;
      chosenAt.current = null;
      const top = area.getBoundingClientRect().top + 60;
      const shown = [...area.querySelectorAll<HTMLElement>("article[data-path]")];
      setCurrent(shown.find((one) => one.getBoundingClientRect().bottom > top)?.dataset.path ?? null);
    };
    const scrolled = () => {
      frame ||= requestAnimationFrame(find);
    };
    area.addEventListener("scroll", scrolled, { passive: true });
    return () => {
      area.removeEventListener("scroll", scrolled);
      cancelAnimationFrame(frame);
    };
  }, [area]);
  const choose = useCallback(
    (path: string) => {
      setCurrent(path);
      requestAnimationFrame(() => {
        chosenAt.current = area?.scrollTop ?? null;
      });
    },
    [area],
  );
  const isKnown = files.some(({ path }) => path === current);
  return { current: isKnown ? current : first, setCurrent: choose };
}

function keepInSight(area: HTMLElement | null, file: ReviewFile): void {
  const article = document.getElementById(anchorOf(file));
  if (area === null || article === null) return;
  if (article.getBoundingClientRect().top < area.getBoundingClientRect().top)
    article.scrollIntoView({ block: "start" });
}

/** Scrolls to the next or previous hunk that is rendered. */
function showHunk(area: HTMLElement | null, by: number): void {
  if (area === null) return;
  const top = area.getBoundingClientRect().top + 60;
  const heads = [...area.querySelectorAll<HTMLElement>("[data-hunk]")];
  const places = heads.map((head) => head.getBoundingClientRect().top - top);
  const at = by > 0 ? places.findIndex((place) => place > 8) : places.findLastIndex((place) => place < -8);
  if (at >= 0) area.scrollBy({ top: places[at] as number });
  else area.scrollBy({ top: by * area.clientHeight });
}

interface Keys {
  step: (by: number) => void;
  hunk: (by: number) => void;
  view: () => void;
  comment: () => void;
  control: FileControl | undefined;
  current: ReviewFile | undefined;
}

function useReviewKeys(keys: Keys): void {
  const now = useRef(keys);
  now.current = keys;
  const hasEdit = keys.control?.edit !== undefined;
  const hasControl = keys.control !== undefined;
  useShortcuts(
    useMemo<Shortcut[]>(() => {
      const withCurrent = (act: (control: FileControl, file: ReviewFile) => void) => () => {
        const { control, current } = now.current;
        if (control && current) act(control, current);
      };
      return [
        { keys: "j", does: "Next file", act: () => now.current.step(1) },
        { keys: "k", does: "Previous file", act: () => now.current.step(-1) },
        { keys: "J", does: "Next hunk", act: () => now.current.hunk(1) },
        { keys: "K", does: "Previous hunk", act: () => now.current.hunk(-1) },
        { keys: "v", does: "Mark the file as viewed", act: () => now.current.view() },
        { keys: "c", does: "Comment on the file's first change", act: () => now.current.comment() },
        ...(hasControl
          ? [
              {
                keys: "a",
                does: "Keep the file, or approve the call",
                act: withCurrent((one, file) => one.accept(file)),
              },
              {
                keys: "r",
                does: "Revert the file, or reject the call",
                act: withCurrent((one, file) => one.reject(file)),
              },
            ]
          : []),
        ...(hasEdit ? [{ keys: "e", does: "Edit the file", act: withCurrent((one, file) => one.edit?.(file)) }] : []),
      ];
    }, [hasControl, hasEdit]),
  );
}

/** Returns a function that stays the same and calls the latest one. */
function useStable<Arguments extends unknown[], Result>(latest: (...args: Arguments) => Result) {
  const now = useRef(latest);
  now.current = latest;
  return useCallback((...args: Arguments) => now.current(...args), []);
}
