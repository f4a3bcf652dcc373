/** Shows text so that it cannot look different from what it is. The same rules as in `toolcrib/core/display_text.py`
 * and `toolcrib/core/approval_text.py`; shared test cases are in `tests/shown_text_cases.json`. */
import type { Change } from "../events/messages";

/** Ranges of escaped code points. Newline and tab are kept. */
const ESCAPED: readonly (readonly [number, number])[] = [
  [0x0000, 0x0008],
  [0x000b, 0x001f],
  [0x007f, 0x00a0],
  [0x00ad, 0x00ad],
  [0x034f, 0x034f],
  [0x061c, 0x061c],
  [0x115f, 0x1160],
  [0x1680, 0x1680],
  [0x17b4, 0x17b5],
  [0x180b, 0x180f],
  [0x2000, 0x200f],
  [0x2028, 0x202f],
  [0x205f, 0x206f],
  [0x2800, 0x2800],
  [0x3164, 0x3164],
  [0xd800, 0xf8ff],
  [0xfdd0, 0xfdef],
  [0xfe00, 0xfe0f],
  [0xfeff, 0xfeff],
  [0xffa0, 0xffa0],
  [0xfff0, 0xfffc],
  [0xfffe, 0xffff],
  [0x13430, 0x1345f],
  [0x1bca0, 0x1bcaf],
  [0x1d173, 0x1d17a],
  [0xe0000, 0x10ffff],
];

/** Marks that stand above, below or on the character before. Two are usual; more of them cover other lines. */
const COMBINING: readonly (readonly [number, number])[] = [
  [0x0300, 0x034e],
  [0x0350, 0x036f],
  [0x0483, 0x0489],
  [0x1ab0, 0x1aff],
  [0x1dc0, 0x1dff],
  [0x20d0, 0x20ff],
  [0xfe20, 0xfe2f],
];

function classOf(ranges: readonly (readonly [number, number])[]): string {
  return `[${ranges.map(([first, last]) => `\\u{${first.toString(16)}}-\\u{${last.toString(16)}}`).join("")}]`;
}

/** A longer run of one kind of space is shown as its length: it could push code out of sight. */
const LONGEST_RUN = 40;
const TAB_WIDTH = 4;
const RUNS: Readonly<Record<string, string>> = { " ": "spaces", "\t": "tabs", "\u3000": "wide spaces" };
const SHORT: Readonly<Record<string, string>> = { "\n": "\\n", "\t": "\\t", "\r": "\\r" };
const HIDDEN = `${classOf(ESCAPED)}|(?<=${classOf(COMBINING)}{2})${classOf(COMBINING)}`;
/** What is escaped. Newline and tab are not. */
export const PATTERN = new RegExp(HIDDEN, "gu");
const MARKED = new RegExp(
  `(?<run>(?<kind>[ \\t\\u3000])\\k<kind>{${LONGEST_RUN},})|(?<tab>\\t)|(?<end> +(?=\\r?$))|${HIDDEN}`,
  "gu",
);

/** Escapes every deceptive character as `\u202e` or `\U000e0041`. Keeps line breaks. */
export function escaped(text: string): string {
  return text.replace(PATTERN, escapeOf);
}

/** Escapes a single line, such as a path or a host: newlines and tabs are escaped, too. */
export function escapedLine(text: string): string {
  return escaped(text).replaceAll("\n", "\\n").replaceAll("\t", "\\t");
}

/** Classes for a name: its letters stand in the order of the bytes, whatever script they are of. */
export const ONE_WAY = "[direction:ltr] [unicode-bidi:bidi-override]";

function escapeOf(found: string): string {
  const code = found.codePointAt(0) ?? 0;
  return SHORT[found] ?? (code <= 0xffff ? `\\u${hex(code, 4)}` : `\\U${hex(code, 8)}`);
}

function hex(code: number, digits: number): string {
  return code.toString(16).padStart(digits, "0");
}

/** A part of a line. A mark stands for what would not be seen: it gets a style, as its characters can be in the text. */
export interface Part {
  text: string;
  isMark: boolean;
  /** How many characters of the file a mark stands for; text stands for itself. */
  covers?: number;
}

/** Splits a line of code into text and marks: escapes, tabs as arrows up to the next tab stop, spaces at the end as dots,
 * and long runs of spaces as their length. */
export function shownParts(text: string): Part[] {
  const parts: Part[] = [];
  let at = 0;
  let column = 0;
  const add = (part: Part) => {
    parts.push(part);
    column += countOf(part.text);
  };
  for (const found of text.matchAll(MARKED)) {
    if (found.index > at) add({ text: text.slice(at, found.index), isMark: false });
    add({ text: markOf(found, column), isMark: true, covers: found[0].length });
    at = found.index + found[0].length;
  }
  if (at < text.length) add({ text: text.slice(at), isMark: false });
  return parts;
}

/** Returns a line of code as every client shows it. */
export function shownLine(text: string): string {
  return textOfParts(shownParts(text));
}

export function textOfParts(parts: readonly Part[]): string {
  return parts.map((part) => part.text).join("");
}

function markOf(found: RegExpExecArray, column: number): string {
  const { run, kind, tab, end } = found.groups ?? {};
  if (run) return `⟦${grouped(run.length)} ${RUNS[kind ?? ""]}⟧`;
  if (tab) return `→${" ".repeat(TAB_WIDTH - 1 - (column % TAB_WIDTH))}`;
  return end ? "·".repeat(end.length) : escapeOf(found[0]);
}

/** Counts code points, as the server does. */
function countOf(text: string): number {
  let count = 0;
  for (const _ of text) count++;
  return count;
}

/** Formats a number as the server does, whatever the language of the browser. */
export function grouped(count: number): string {
  return count.toLocaleString("en-US");
}

const REASONS: Readonly<Record<string, string>> = {
  binary: "binary",
  large: "too large to show here",
  secret: "may be secret, not shown",
  unread: "not compared here",
  costly: "takes too long to compare",
  failed: "the server failed to compare it",
};

/** Returns what happens to one file, without its lines. */
export function changeHead(change: Change): string {
  if (change.change === "omitted") return `and ${grouped(change.count ?? 0)} more files`;
  const counts = change.added == null ? "" : ` +${grouped(change.added)} -${grouped(change.removed ?? 0)}`;
  const facts = changeFacts(change);
  return `${change.change} ${changedPath(change)}${counts}${facts.length > 0 ? ` (${facts.join(", ")})` : ""}`;
}

export function changedPath(change: Change): string {
  return [change.from, change.path].flatMap((name) => (name ? [escapedLine(name)] : [])).join(" → ");
}

/** Returns what a diff does not say: links, modes, and why there is no diff. */
export function changeFacts(change: Change): string[] {
  const { kind, before, after, target, was_target: was } = change;
  const sides = [before, after].flatMap((side) => (side ? [side] : []));
  const facts: string[] = [];
  if (change.was_kind) facts.push(`was a ${change.was_kind}`);
  if (kind === "link") {
    facts.push(target == null ? "link" : `link to ${escapedLine(target)}`);
    if (was != null && was !== target) facts.push(`was to ${escapedLine(was)}`);
  } else if (kind === "folder") facts.push("folder");
  if (kind !== "link" && before && after && before.mode !== after.mode) {
    facts.push(`mode ${before.mode} → ${after.mode}`);
  } else if (after && !before && (kind === "file" || kind === "folder")) {
    if (after.mode !== (kind === "folder" ? "755" : "644")) facts.push(`mode ${after.mode}`);
  }
  if (change.diff_omitted) facts.push("diff not loaded");
  else if (lacksDiff(change)) {
    facts.push(REASONS[change.no_diff ?? ""] ?? "not shown");
    facts.push(sides.map((side) => `${grouped(side.size)} bytes`).join(" → "));
  } else if (kind === "file" && sides.every((side) => side.size === 0)) facts.push("empty");
  if (after?.sha256 && (lacksDiff(change) || kind === "folder")) facts.push(`sha256 ${after.sha256}`);
  return facts;
}

/** Returns how many files and lines the changes are, and how many of them are not shown. */
export function totalsOf(changes: readonly Change[]): string {
  const sum = (numbers: (number | null | undefined)[]) => numbers.reduce<number>((all, one) => all + (one ?? 0), 0);
  const files = sum(changes.map((change) => change.count ?? 1));
  const added = sum(changes.map((change) => change.added));
  const removed = sum(changes.map((change) => change.removed));
  const without = changes.filter(lacksDiff).length;
  const unlisted = sum(changes.map((change) => (change.change === "omitted" ? change.count : 0)));
  return [
    `${files === 1 ? "1 file" : `${grouped(files)} files`} changed, +${grouped(added)} -${grouped(removed)}`,
    ...(without > 0 ? [`${grouped(without)} without a diff`] : []),
    ...(unlisted > 0 ? [`${grouped(unlisted)} not listed`] : []),
  ].join(", ");
}

/** Whether the content changes and its lines are not shown. */
function lacksDiff(change: Change): boolean {
  return !change.diff && Boolean(change.no_diff || change.diff_omitted);
}

/** An argument of a call: a value on one line, or a text in its lines. */
export interface Argument {
  name: string;
  lines: string[];
  isText: boolean;
}

/** A string that would look like another value without quotes. */
const LIKE_JSON = /^(?:true|false|null|[-0-9[{"].*|)$/s;

/** Returns the arguments of a call by names such as `edits[0].old_string`. A text keeps its lines. */
export function shownArguments(given: unknown): Argument[] {
  if (typeof given === "string") return [{ name: "", lines: given.split("\n"), isText: true }];
  const found: Argument[] = [];
  flatten("", given, found);
  return found;
}

function flatten(name: string, value: unknown, found: Argument[]): void {
  if (Array.isArray(value) && value.length > 0) {
    for (const [number, one] of value.entries()) flatten(`${name}[${number}]`, one, found);
  } else if (isRecord(value) && (name === "" || Object.keys(value).length > 0)) {
    for (const [key, one] of Object.entries(value)) {
      const shown = /^[A-Za-z0-9_.-]+$/.test(key) ? key : JSON.stringify(escaped(key));
      flatten(name === "" ? shown : `${name}.${shown}`, one, found);
    }
  } else if (typeof value === "string" && value.includes("\n")) {
    found.push({ name, lines: value.split("\n"), isText: true });
  } else {
    const isPlain = typeof value === "string" && !LIKE_JSON.test(value);
    found.push({ name, lines: [isPlain ? value : (JSON.stringify(value) ?? "null")], isText: false });
  }
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
