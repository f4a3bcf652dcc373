/** One file of a review: its header with what a person can do, and its lines in parts that are rendered when near. */
import { ChevronDown, ChevronRight, Copy, UnfoldVertical } from "lucide-react";
import { lazy, memo, type ReactNode, Suspense, useCallback, useEffect, useMemo, useState } from "react";
import { Badge, type Tone } from "../../components/Badge";
import { Button, IconButton } from "../../components/Button";
import { copyText } from "../../components/clipboard";
import type { RawLine } from "../../components/diffLines";
import { Loading } from "../../components/Loading";
import { escapedLine, grouped } from "../../components/shownText";
import { CommentBox, CommentForm } from "./CommentBox";
import { newComment } from "./comments";
import { DiffRow } from "./DiffRow";
import { Counts } from "./FileTree";
import { type Expanded, hasLinesOf, keyOf, type Row, rowsOf } from "./fileRows";
import { lineKeyed } from "./lineKeys";
import { Near } from "./Near";
import type { ReviewFile, ReviewHunk } from "./reviewFiles";
import type { Comments } from "./useComments";
import { type Syntax, useSyntax } from "./useSyntax";

const ReviewImages = lazy(() => import("./ReviewImages"));

/** Rows that are rendered together, and the height of one, in pixels. */
const PART = 20;
const ROW_HEIGHT = 20;
const HEAD_HEIGHT = 44;
/** The width from which both line numbers fit, in pixels. */
const ROOM_FOR_NUMBERS = 600;

const TONES: Record<string, Tone> = { created: "good", deleted: "bad", modified: "plain", moved: "accent" };

export interface FileActions {
  /** Marks a hunk for its revert, or unmarks it. */
  onMark?: (file: ReviewFile, hunk: ReviewHunk) => void;
  /** Reads the lines of the file on one side. */
  read: (file: ReviewFile) => Promise<{ lines: readonly string[]; side: "before" | "after" }>;
  /** Loads more of the lines that the change has. */
  more?: (file: ReviewFile) => Promise<void>;
}

interface Props extends FileActions {
  workspaceId: string;
  file: ReviewFile;
  isCurrent: boolean;
  /** The hunk that keys act on. */
  currentHunk: string | null;
  isFolded: boolean;
  onFold: (file: ReviewFile, isFolded: boolean) => void;
  isViewed: boolean;
  onViewed: (file: ReviewFile, isViewed: boolean) => void;
  isSplit: boolean;
  width: number;
  marked: ReadonlySet<string>;
  comments: Comments;
  /** The line whose comment is being written. */
  openLine: string | null;
  /** Null if the person cannot comment. */
  onOpenLine: ((file: ReviewFile, key: string | null) => void) | null;
  /** Buttons of the file. */
  children?: ReactNode;
}

export const FileReview = memo(function FileReview(props: Props) {
  const { file, isCurrent, isFolded } = props;
  const lines = file.hunks.reduce((sum, hunk) => sum + hunk.lines.length, 0);
  return (
    <article
      id={anchorOf(file.path)}
      aria-label={escapedLine(file.path)}
      data-path={file.path}
      tabIndex={-1}
      className={`scroll-mt-2 rounded-lg border bg-surface ${isCurrent ? "border-accent" : "border-line"}`}
    >
      <Near isKept estimate={HEAD_HEIGHT + (isFolded ? 0 : lines * ROW_HEIGHT)}>
        {() => <FileContent {...props} />}
      </Near>
    </article>
  );
});

export function anchorOf(path: string): string {
  return `file ${path}`;
}

function FileContent(props: Props) {
  const { file, isFolded, onFold, isViewed, onViewed, children } = props;
  const name = escapedLine(file.path);
  return (
    <>
      <header
        className={`sticky top-0 z-10 flex min-h-11 flex-wrap items-center gap-x-2 gap-y-1 rounded-t-lg bg-sunken px-2 py-1 ${isFolded ? "rounded-b-lg" : "border-b border-line"}`}
      >
        <IconButton
          label={isFolded ? `Show ${name}` : `Hide ${name}`}
          aria-expanded={!isFolded}
          onClick={() => onFold(file, !isFolded)}
        >
          {isFolded ? <ChevronRight aria-hidden className="size-4" /> : <ChevronDown aria-hidden className="size-4" />}
        </IconButton>
        <h2 className="min-w-0 font-mono text-xs font-semibold wrap-anywhere [direction:ltr] [unicode-bidi:bidi-override]">
          {file.fromPath !== null && <span className="font-normal text-muted">{escapedLine(file.fromPath)} → </span>}
          {name}
        </h2>
        <IconButton label="Copy path" className="text-muted max-sm:hidden" onClick={() => void copyText(file.path)}>
          <Copy aria-hidden className="size-3.5" />
        </IconButton>
        {file.change !== "modified" && <Badge tone={TONES[file.change] ?? "plain"}>{file.change}</Badge>}
        <Counts added={file.added} removed={file.removed} />
        {file.editedBy !== null && <Badge tone="accent">edited by {escapedLine(file.editedBy)}</Badge>}
        {file.facts.length > 0 && (
          <span className="min-w-0 text-xs text-muted wrap-anywhere">{file.facts.join(", ")}</span>
        )}
        <span className="ml-auto flex flex-wrap items-center gap-2">
          {children}
          <label className="flex min-h-7 pointer-coarse:min-h-11 cursor-pointer items-center gap-2 rounded-md border border-line-control bg-surface px-2 text-xs has-checked:border-accent has-checked:bg-accent-soft">
            <input
              type="checkbox"
              aria-label={`Viewed ${name}`}
              checked={isViewed}
              onChange={({ target }) => onViewed(file, target.checked)}
              className="accent-(--accent)"
            />
            Viewed
          </label>
        </span>
      </header>
      {!isFolded && (file.hunks.length > 0 ? <FileLines {...props} /> : file.rest === null && <NoLines {...props} />)}
      {!isFolded && file.rest !== null && props.more && (
        <MoreLines key={`${file.version} ${file.rest.from}`} file={file} rest={file.rest} more={props.more} />
      )}
    </>
  );
}

/** A created file is shown whole. */
function hasUnchangedLines({ change, hasContent }: ReviewFile): boolean {
  return hasContent && change !== "created";
}

/** Loads the next lines of a long change: the first ones by itself, the others when a person asks for them. */
function MoreLines({ file, rest, more }: { file: ReviewFile; rest: NonNullable<ReviewFile["rest"]>; more: LoadMore }) {
  const [isBusy, setIsBusy] = useState(false);
  const [flaw, setFlaw] = useState<string | null>(null);
  const isFirst = file.hunks.length === 0 && file.change !== "omitted";
  const load = useCallback(async () => {
    setIsBusy(true);
    setFlaw(null);
    try {
      await more(file);
    } catch (thrown) {
      setFlaw(thrown instanceof Error ? thrown.message : String(thrown));
    } finally {
      setIsBusy(false);
    }
  }, [file, more]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: once, when the file comes near
  useEffect(() => {
    if (isFirst) void load();
  }, []);
  const what =
    rest.count === null ? "" : `: ${grouped(rest.count)} ${rest.count === 1 ? "line" : "lines"} not shown yet`;
  return (
    <div className="flex flex-wrap items-center justify-center gap-2 border-t border-line px-3 py-2 text-xs">
      {flaw !== null && (
        <p role="alert" className="text-bad">
          Could not be loaded: {escapedLine(flaw)}
        </p>
      )}
      <Button small data-more busy={isBusy} onClick={() => void load()}>
        {file.change === "omitted" ? "Show the next files" : `Show more lines${what}`}
      </Button>
    </div>
  );
}

type LoadMore = NonNullable<FileActions["more"]>;

function NoLines({ file, workspaceId }: Props) {
  if (file.images.length > 0) {
    return (
      <Suspense fallback={<Loading what="images" />}>
        <ReviewImages workspaceId={workspaceId} file={file} />
      </Suspense>
    );
  }
  if (file.flaw !== null) {
    return (
      <p role="alert" className="px-3 py-4 text-center text-xs text-bad">
        The changes of this file could not be shown: {file.flaw}
      </p>
    );
  }
  return (
    <p className="px-3 py-4 text-center text-xs text-muted">
      {file.change === "moved"
        ? "Moved without changes."
        : file.facts.length > 0
          ? "No lines to show."
          : "No lines to show: no content changed."}
    </p>
  );
}

function FileLines(props: Props) {
  const { file, isSplit, width, read } = props;
  const syntax = useSyntax(file.path, file.hunks, true);
  const [expanded, setExpanded] = useState<Expanded>(new Set());
  const [content, setContent] = useState<readonly string[] | null>(null);
  const [flaw, setFlaw] = useState<string | null>(null);
  const rows = useMemo(
    () => rowsOf(file.hunks, { isSplit, expanded, content, hasRest: hasUnchangedLines(file) && file.rest === null }),
    [file, isSplit, expanded, content],
  );
  const parts = useMemo(() => partsOf(rows), [rows]);

  async function expand(at: number) {
    setFlaw(null);
    try {
      setContent(content ?? (await contentOf(file, read)));
      setExpanded(new Set([...expanded, at]));
    } catch (thrown) {
      setFlaw(thrown instanceof Error ? thrown.message : String(thrown));
    }
  }

  const columns = Math.max(30, (isSplit ? width / 2 : width) / 7.3 - 14);
  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: the keys are those of the changes and lines in it
    <div className="overflow-hidden rounded-b-lg font-mono text-xs leading-5" onKeyDown={lineKeyed}>
      {flaw !== null && (
        <p role="alert" className="bg-warn-soft px-3 py-1 font-sans text-warn">
          {flaw}
        </p>
      )}
      {parts.map((part) => (
        <Near key={part[0]?.key} estimate={heightOf(part, columns)} hunks={hunksIn(part)}>
          {() => <RowList {...props} rows={part} syntax={syntax} onExpand={file.hasContent ? expand : null} />}
        </Near>
      ))}
    </div>
  );
}

async function contentOf(file: ReviewFile, read: FileActions["read"]): Promise<readonly string[]> {
  const { lines, side } = await read(file);
  if (!hasLinesOf(lines, file.hunks, side)) throw new Error("The file has changed since. Reload to see its lines.");
  return side === "after" ? lines : withChanges(lines, file.hunks);
}

/** Returns the lines after the change. */
function withChanges(before: readonly string[], hunks: readonly ReviewHunk[]): string[] {
  const lines: string[] = [];
  let at = 1;
  for (const row of rowsOf(hunks, { isSplit: false, expanded: new Set(), content: null, hasRest: false })) {
    if (row.kind === "hunk") {
      lines.push(...before.slice(at - 1, at - 1 + row.gap));
      at += row.gap;
    } else if (row.kind === "line" && row.left !== null) {
      if (row.left.before !== null) at = row.left.before + 1;
      if (row.left.after !== null) lines.push(row.left.raw);
    }
  }
  return [...lines, ...before.slice(at - 1)];
}

function partsOf(rows: readonly Row[]): Row[][] {
  const parts: Row[][] = [];
  for (let at = 0; at < rows.length; at += PART) parts.push(rows.slice(at, at + PART));
  return parts;
}

function hunksIn(rows: readonly Row[]): string {
  return rows.flatMap((row) => (row.kind === "hunk" ? [row.hunk.id] : [])).join(" ");
}

function heightOf(rows: readonly Row[], columns: number): number {
  const wrapped = (line: RawLine | null) => Math.max(1, Math.ceil((line?.raw.length ?? 0) / columns));
  return rows.reduce(
    (sum, row) => sum + (row.kind === "line" ? ROW_HEIGHT * Math.max(wrapped(row.left), wrapped(row.right)) : 32),
    0,
  );
}

interface ListProps extends Props {
  rows: readonly Row[];
  syntax: Syntax;
  onExpand: ((at: number) => void) | null;
}

const RowList = memo(function RowList(props: ListProps) {
  return props.rows.map((row) => <AnyRow key={row.key} row={row} {...props} />);
});

function AnyRow({ row, ...props }: ListProps & { row: Row }) {
  const { file, isSplit, width, syntax, marked, comments, openLine, onOpenLine, onExpand } = props;
  if (row.kind === "hunk") return <HunkHead row={row} {...props} />;
  if (row.kind === "rest") {
    return (
      <div className="flex min-h-7 items-center border-t border-line bg-accent-soft/60">
        <Expander gap={row.gap} onExpand={onExpand && (() => onExpand(-1))} />
      </div>
    );
  }
  const keys = isSplit ? [...new Set([keyOf(row.left), keyOf(row.right)])] : [keyOf(row.left)];
  const shown = comments.all.filter((one) => one.path === file.path && keys.includes(one.key));
  const commented = openLine !== null && keys.includes(openLine) ? openLine : null;
  const line = row.left && keyOf(row.left) === commented ? row.left : row.right;
  return (
    <>
      <DiffRow
        row={row}
        isSplit={isSplit}
        hasBothNumbers={width >= ROOM_FOR_NUMBERS}
        syntax={syntax}
        isReverted={row.hunk !== null && marked.has(row.hunk.id)}
        onComment={onOpenLine && ((one) => onOpenLine(file, keyOf(one)))}
      />
      {(shown.length > 0 || commented !== null) && (
        <div className="border-y border-line bg-ground py-0.5">
          {shown.map((one) => (
            <CommentBox key={one.id} comment={one} onRemove={() => comments.remove(one.id)} />
          ))}
          {commented !== null && line !== null && onOpenLine && (
            <CommentForm
              lineKey={commented}
              canSend={comments.canSend}
              isSending={comments.isSending}
              onAdd={(text) => {
                comments.add(newComment(file.path, line, text));
                onOpenLine(file, null);
              }}
              onSend={(text) => {
                comments.send([newComment(file.path, line, text)]);
                onOpenLine(file, null);
              }}
              onClose={() => onOpenLine(file, null)}
            />
          )}
        </div>
      )}
    </>
  );
}

export function firstChange({ lines }: ReviewHunk): RawLine | undefined {
  return lines.find(({ kind }) => kind === "new") ?? lines.find(({ kind }) => kind === "gone");
}

function HunkHead({ row, ...props }: ListProps & { row: Extract<Row, { kind: "hunk" }> }) {
  const { file, marked, onMark, onOpenLine, onExpand, currentHunk } = props;
  const { hunk, number, gap } = row;
  const isMarked = marked.has(hunk.id);
  const first = firstChange(hunk);
  return (
    <div
      role="group"
      aria-label={`Change ${number + 1} of ${file.hunkCount} in ${escapedLine(file.path)}`}
      aria-current={hunk.id === currentHunk ? "location" : undefined}
      tabIndex={-1}
      data-hunk={hunk.id}
      className={`flex min-h-7 scroll-mt-16 flex-wrap items-center gap-x-2 bg-accent-soft/60 pr-2 -outline-offset-2 aria-[current]:bg-accent-soft aria-[current]:shadow-[inset_3px_0_var(--accent)] ${number > 0 || gap > 0 ? "border-y border-line" : "border-b border-line"}`}
    >
      <Expander gap={gap} onExpand={onExpand && (() => onExpand(number))} />
      <span data-line="hunk" className="min-w-0 py-1 text-muted wrap-anywhere max-sm:hidden">
        {escapedLine(hunk.lines[0]?.raw ?? "")}
      </span>
      {hunk.byOthers !== null && <Badge tone="accent">{escapedLine(hunk.byOthers)}</Badge>}
      <span className="ml-auto flex items-center gap-1 font-sans">
        {first && onOpenLine && (
          <Button
            small
            variant="quiet"
            aria-label={`Comment on hunk ${number + 1}`}
            onClick={() => onOpenLine(file, keyOf(first))}
          >
            Comment
          </Button>
        )}
        {onMark && hunk.isRevertible && (file.hunkCount > 1 || isMarked) && (
          <Button
            small
            variant={isMarked ? "danger" : "quiet"}
            aria-pressed={isMarked}
            aria-label={`Revert hunk ${number + 1}`}
            onClick={() => onMark(file, hunk)}
          >
            {isMarked ? "Will be reverted" : "Revert hunk"}
          </Button>
        )}
      </span>
    </div>
  );
}

function Expander({ gap, onExpand }: { gap: number | null; onExpand: (() => void) | null }) {
  if (gap === 0) return <span className="w-[3ch]" />;
  const text = gap === null ? "Show the rest" : `${grouped(gap)} unchanged ${gap === 1 ? "line" : "lines"}`;
  if (onExpand === null) return <span className="pl-2 text-muted">{text}</span>;
  return (
    <button
      type="button"
      aria-label={gap === null ? text : `Show ${text}`}
      onClick={onExpand}
      className="flex min-h-7 items-center gap-2 px-2 text-accent hover:underline"
    >
      <UnfoldVertical aria-hidden className="size-3.5" />
      {text}
    </button>
  );
}
