/** Splits markdown at blank lines outside fenced code. Later text cannot change an earlier block. */
export function blocksOf(text: string): string[] {
  const blocks: string[] = [];
  let block: string[] = [];
  let fence: string | null = null;
  for (const line of text.split("\n")) {
    const mark = /^\s*(```+|~~~+)/.exec(line)?.[1];
    if (fence === null && mark) fence = mark;
    else if (fence !== null && mark?.startsWith(fence)) fence = null;
    if (fence === null && line.trim() === "" && !mark) {
      if (block.length > 0) blocks.push(block.join("\n"));
      block = [];
    } else block.push(line);
  }
  if (block.length > 0) blocks.push(block.join("\n"));
  return blocks;
}

/** How much text is parsed at once. */
const SECTION = 4_000;

/** Splits long markdown where nothing before can change what follows: at an empty line before a paragraph or a heading
 * at the left edge, outside fenced code. Definitions, which are valid in the whole text, keep it in one piece. */
export function sectionsOf(text: string): string[] {
  if (text.length <= SECTION || /^ {0,3}\[[^\]]+\]:/m.test(text)) return [text];
  const sections: string[] = [];
  let from = 0;
  let at = 0;
  let fence: string | null = null;
  let isAfterEmpty = false;
  for (const line of text.split("\n")) {
    const mark = /^\s*(```+|~~~+)/.exec(line)?.[1];
    if (fence === null && isAfterEmpty && at - from >= SECTION && /^(\p{L}|#{1,6} )/u.test(line)) {
      sections.push(text.slice(from, at));
      from = at;
    }
    if (fence === null && mark) fence = mark;
    else if (fence !== null && mark?.startsWith(fence)) fence = null;
    isAfterEmpty = line.trim() === "";
    at += line.length + 1;
  }
  return [...sections, text.slice(from)];
}
