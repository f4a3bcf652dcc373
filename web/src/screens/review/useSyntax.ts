/** The colours of the lines of a file, and its changed words. They arrive after the lines. */
import { startTransition, useEffect, useState } from "react";
import type { RawLine } from "../../components/diffLines";
import type { Span } from "./lineSegments";
import type { ReviewHunk } from "./reviewFiles";
import type { Ranges } from "./syntax";

type Module = typeof import("./syntax");

export interface Syntax {
  spans: ReadonlyMap<RawLine, readonly Span[]>;
  /** The changed words of a line and of the line that replaced it. */
  words: (gone: RawLine, came: RawLine) => readonly [Ranges, Ranges];
}

const PLAIN: Syntax = { spans: new Map(), words: () => [[], []] };

export function useSyntax(path: string, hunks: readonly ReviewHunk[], isShown: boolean): Syntax {
  const [syntax, setSyntax] = useState<Syntax>(PLAIN);
  useEffect(() => {
    if (!isShown || hunks.length === 0) return;
    let isCancelled = false;
    void colour(
      path,
      hunks,
      () => isCancelled,
      (found) => startTransition(() => setSyntax(found)),
    );
    return () => {
      isCancelled = true;
    };
  }, [path, hunks, isShown]);
  return syntax;
}

async function colour(
  path: string,
  hunks: readonly ReviewHunk[],
  isCancelled: () => boolean,
  show: (syntax: Syntax) => void,
): Promise<void> {
  const syntax = await import("./syntax");
  const spans = new Map<RawLine, readonly Span[]>();
  const words = wordsOf(syntax);
  if (isCancelled()) return;
  show({ spans, words });
  for (const side of ["before", "after"] as const) {
    for (const hunk of hunks) {
      const lines = hunk.lines.filter((line) => line.kind !== "hunk" && line[side] !== null);
      const found = await syntax.highlighted(
        path,
        lines.map((line) => line.raw),
        isCancelled,
      );
      if (found === null) return;
      for (const [at, line] of lines.entries()) spans.set(line, found[at] ?? []);
    }
  }
  show({ spans, words });
}

function wordsOf({ changedWords }: Module): Syntax["words"] {
  const known = new WeakMap<RawLine, readonly [Ranges, Ranges]>();
  return (gone, came) => {
    const found = known.get(gone) ?? changedWords(gone.raw, came.raw);
    known.set(gone, found);
    return found;
  };
}
