/** Cuts a line into segments of one style: marks, syntax and changed words. Pure. */
import type { Part } from "../../components/shownText";

/** A range of a line with a style. Ranges of one line do not overlap. */
export interface Span {
  from: number;
  to: number;
  style: string;
}

export interface Segment {
  text: string;
  /** It stands for what would not be seen. */
  isMark: boolean;
  style: string;
  isChanged: boolean;
}

/** Ranges count the characters of the file, parts those that are shown. A mark is never cut. */
export function segmentsOf(
  parts: readonly Part[],
  spans: readonly Span[],
  changed: readonly (readonly [number, number])[],
): Segment[] {
  const segments: Segment[] = [];
  let at = 0;
  for (const { text, isMark, covers } of parts) {
    if (isMark) {
      segments.push({ text, isMark, style: "", isChanged: isWithin(changed, at) && (covers ?? 0) > 0 });
      at += covers ?? 0;
      continue;
    }
    const end = at + text.length;
    const cuts = new Set([at, end]);
    for (const span of spans) addCuts(cuts, span.from, span.to, at, end);
    for (const [from, to] of changed) addCuts(cuts, from, to, at, end);
    const places = [...cuts].sort((one, other) => one - other);
    for (let piece = 0; piece + 1 < places.length; piece++) {
      const [from, to] = [places[piece] as number, places[piece + 1] as number];
      const style = spans.find((span) => span.from <= from && from < span.to)?.style ?? "";
      const isChanged = isWithin(changed, from);
      const last = segments.at(-1);
      const shown = text.slice(from - at, to - at);
      if (last && !last.isMark && last.style === style && last.isChanged === isChanged) last.text += shown;
      else segments.push({ text: shown, isMark: false, style, isChanged });
    }
    at = end;
  }
  return segments;
}

function addCuts(cuts: Set<number>, from: number, to: number, start: number, end: number): void {
  if (from > start && from < end) cuts.add(from);
  if (to > start && to < end) cuts.add(to);
}

function isWithin(ranges: readonly (readonly [number, number])[], at: number): boolean {
  return ranges.some(([from, to]) => from <= at && at < to);
}
