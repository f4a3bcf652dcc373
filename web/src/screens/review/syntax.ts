/** Highlights the syntax of lines, and finds the words that changed in a line. Loaded with the first diff. */
import { presentableDiff } from "@codemirror/merge";
import { highlightTree, tagHighlighter, tags } from "@lezer/highlight";
import { languageOf } from "../../editor/languages";
import type { Span } from "./lineSegments";

/** How long one step may take, in milliseconds. */
const STEP = 8;
/** Longer texts and lines are shown without colours. */
const LONGEST_TEXT = 1_000_000;
const LONGEST_LINE = 2_000;

const highlighter = tagHighlighter([
  { tag: [tags.comment, tags.meta, tags.processingInstruction], class: "syntax-comment" },
  { tag: [tags.string, tags.special(tags.string), tags.regexp, tags.attributeValue], class: "syntax-string" },
  { tag: [tags.keyword, tags.operatorKeyword, tags.modifier, tags.controlKeyword, tags.self], class: "syntax-keyword" },
  { tag: [tags.number, tags.bool, tags.null, tags.atom, tags.unit, tags.color], class: "syntax-number" },
  { tag: [tags.function(tags.variableName), tags.function(tags.propertyName)], class: "syntax-function" },
  { tag: [tags.definition(tags.variableName), tags.propertyName, tags.attributeName], class: "syntax-name" },
  { tag: [tags.typeName, tags.className, tags.namespace, tags.tagName], class: "syntax-type" },
  { tag: [tags.heading, tags.strong], class: "syntax-heading" },
  { tag: [tags.link, tags.url], class: "syntax-link" },
]);

/** Returns the styles of each line, or null for a file without a language. Never holds the page for long. */
export async function highlighted(
  path: string,
  lines: readonly string[],
  isCancelled: () => boolean,
): Promise<Span[][] | null> {
  const support = await languageOf(path);
  const text = lines.join("\n");
  if (support === null || text.length > LONGEST_TEXT) return null;
  const parse = support.language.parser.startParse(text);
  let tree = parse.advance();
  for (let until = performance.now() + STEP; tree === null; tree = parse.advance()) {
    if (performance.now() < until) continue;
    await pause();
    if (isCancelled()) return null;
    until = performance.now() + STEP;
  }
  const found: Span[][] = lines.map(() => []);
  const starts: number[] = [];
  let end = 0;
  for (const line of lines) {
    starts.push(end);
    end += line.length + 1;
  }
  const slice = 200;
  let until = performance.now() + STEP;
  for (let first = 0; first < lines.length; first += slice) {
    const to = starts[first + slice] ?? text.length;
    let at = first;
    highlightTree(
      tree,
      highlighter,
      (from, to, style) => {
        while ((starts[at + 1] ?? Number.POSITIVE_INFINITY) <= from) at++;
        // A string of several lines has a part in each.
        for (let line = at; line < lines.length && (starts[line] as number) < to; line++) {
          const start = starts[line] as number;
          const last = Math.min(to - start, lines[line]?.length ?? 0);
          if (last > Math.max(0, from - start) && (lines[line]?.length ?? 0) <= LONGEST_LINE) {
            found[line]?.push({ from: Math.max(0, from - start), to: last, style });
          }
        }
      },
      starts[first] ?? 0,
      to,
    );
    if (performance.now() < until) continue;
    await pause();
    if (isCancelled()) return null;
    until = performance.now() + STEP;
  }
  return found;
}

function pause(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve));
}

export type Ranges = readonly (readonly [number, number])[];
const NONE: readonly [Ranges, Ranges] = [[], []];

/** Returns the changed words of two lines; nothing if most of them changed. */
export function changedWords(before: string, after: string): readonly [Ranges, Ranges] {
  if (Math.max(before.length, after.length) > LONGEST_LINE) return NONE;
  const found = presentableDiff(before, after, { scanLimit: 200, timeout: 5 });
  const share = (ranges: Ranges, text: string) =>
    ranges.reduce((sum, [from, to]) => sum + to - from, 0) / Math.max(1, text.trim().length);
  const gone: Ranges = found.filter((one) => one.toA > one.fromA).map((one) => [one.fromA, one.toA]);
  const came: Ranges = found.filter((one) => one.toB > one.fromB).map((one) => [one.fromB, one.toB]);
  return share(gone, before) > 0.7 || share(came, after) > 0.7 ? NONE : [gone, came];
}
