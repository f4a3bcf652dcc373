/** A row of a diff: one line with both numbers, or two lines side by side. Long lines wrap. */
import { EXACT } from "../../components/Code";
import { type RawLine, shownPartsOf } from "../../components/diffLines";
import { keyOf, type Row } from "./fileRows";
import { segmentsOf } from "./lineSegments";
import type { Syntax } from "./useSyntax";

type LineRow = Extract<Row, { kind: "line" }>;

const TONES: Record<RawLine["kind"], string> = { hunk: "", same: "", gone: "bg-bad-soft", new: "bg-good-soft" };
const NUMBERS: Record<RawLine["kind"], string> = {
  hunk: "",
  same: "text-muted",
  gone: "bg-bad/15 text-ink",
  new: "bg-good/15 text-ink",
};
const SIGNS: Record<RawLine["kind"], string> = { hunk: " ", same: " ", gone: "-", new: "+" };
const WORDS = { gone: "bg-bad/30", new: "bg-good/30" } as const;

interface Props {
  row: LineRow;
  isSplit: boolean;
  /** Show the numbers of both sides. */
  hasBothNumbers: boolean;
  syntax: Syntax;
  /** The hunk is to be reverted. */
  isReverted: boolean;
  /** Without it, lines cannot be commented on. */
  onComment: ((line: RawLine) => void) | null;
}

export function DiffRow({ row, isSplit, hasBothNumbers, syntax, isReverted, onComment }: Props) {
  const { left, right } = row;
  const common = { syntax, isReverted, onComment, hunk: row.hunk?.id };
  if (isSplit) {
    return (
      <div className="flex">
        <Side line={left} mate={right} numbers={["before"]} className="w-1/2 border-r border-line" {...common} />
        <Side line={right} mate={left} numbers={["after"]} className="w-1/2" {...common} />
      </div>
    );
  }
  const numbers: Numbers = hasBothNumbers ? ["before", "after"] : ["either"];
  return <Side line={left} mate={right} numbers={numbers} className="w-full" {...common} />;
}

type Numbers = readonly ("before" | "after" | "either")[];

interface SideProps extends Pick<Props, "syntax" | "isReverted" | "onComment"> {
  line: RawLine | null;
  mate: RawLine | null;
  numbers: Numbers;
  className: string;
  hunk: string | undefined;
}

function Side({ line, mate, numbers, className, syntax, isReverted, onComment, hunk }: SideProps) {
  if (line === null) return <div className={`${className} bg-sunken`} />;
  const isStruck = isReverted && line.kind === "new";
  return (
    <div className={`group/line flex ${className} ${TONES[line.kind]}`}>
      {numbers.map((side) => (
        <span
          key={side}
          aria-hidden
          className={`w-[5.5ch] shrink-0 pr-[1ch] text-right select-none ${NUMBERS[line.kind]}`}
        >
          {side === "either" ? (line.after ?? line.before) : line[side]}
        </span>
      ))}
      <span className="relative w-[3ch] shrink-0 text-center select-none" aria-hidden={onComment === null}>
        {SIGNS[line.kind]}
        {onComment !== null && (
          <button
            type="button"
            tabIndex={-1}
            data-line-of={hunk}
            aria-label={`Comment on line ${keyOf(line)}`}
            className="absolute top-0 left-0 size-5 rounded-sm bg-accent text-base font-bold text-on-accent opacity-0 group-hover/line:opacity-100 focus:opacity-100 pointer-coarse:hidden"
            onClick={() => onComment(line)}
          >
            +
          </button>
        )}
      </span>
      <span
        className={`min-w-0 grow pr-2 ${EXACT} ${isStruck ? "line-through decoration-bad" : ""}`}
        data-line={line.kind}
      >
        <LineText line={line} mate={mate} syntax={syntax} />
      </span>
    </div>
  );
}

function LineText({ line, mate, syntax }: { line: RawLine; mate: RawLine | null; syntax: Syntax }) {
  const segments = segmentsOf(shownPartsOf(line), syntax.spans.get(line) ?? [], changedIn(line, mate, syntax));
  return segments.map(({ text, isMark, style, isChanged }, number) => {
    const mark = isMark ? (/^[→·]/.test(text) ? "text-muted" : "rounded-sm bg-warn-soft text-warn") : style;
    if (isChanged && line.kind !== "same" && line.kind !== "hunk") {
      return (
        // biome-ignore lint/suspicious/noArrayIndexKey: the parts of a line have no other name
        <mark key={number} data-mark={isMark || undefined} className={`rounded-sm text-ink ${WORDS[line.kind]}`}>
          {text}
        </mark>
      );
    }
    if (mark === "") return text;
    return (
      // biome-ignore lint/suspicious/noArrayIndexKey: the parts of a line have no other name
      <span key={number} data-mark={isMark || undefined} className={mark}>
        {text}
      </span>
    );
  });
}

function changedIn(line: RawLine, mate: RawLine | null, syntax: Syntax) {
  if (mate === null || mate.kind === line.kind) return [];
  return line.kind === "gone" ? syntax.words(line, mate)[0] : syntax.words(mate, line)[1];
}
