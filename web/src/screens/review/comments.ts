/** Comments on lines of a review, and the message in which the agent reads them. Pure. */
import type { RawLine } from "../../components/diffLines";
import { keyOf } from "./fileRows";

export interface Comment {
  id: string;
  path: string;
  /** The line: its side and number. */
  key: string;
  /** The line with its sign. */
  quote: string;
  text: string;
  isSent: boolean;
}

export function newComment(path: string, line: RawLine, text: string): Comment {
  const sign = line.kind === "gone" ? "-" : line.kind === "new" ? "+" : " ";
  return { id: newId(), path, key: keyOf(line), quote: `${sign}${line.raw}`, text: text.trim(), isSent: false };
}

/** Says where a comment is: "line 12", or "removed line 12". */
export function placeOf(key: string): string {
  const [side, number] = key.split(" ");
  return side === "old" ? `removed line ${number}` : `line ${number}`;
}

/** The message that the agent reads: each comment with its file, line and quoted text. */
export function messageOf(comments: readonly Comment[]): string {
  const head = comments.length === 1 ? "A comment on your change:" : `${comments.length} comments on your changes:`;
  const texts = comments.map(({ path, key, quote, text }) => `${path}, ${placeOf(key)}:\n> ${quote}\n\n${text}`);
  return [head, ...texts].join("\n\n");
}

/** `crypto.randomUUID` exists only in secure contexts. */
function newId(): string {
  return `${Date.now()}-${Math.random()}`;
}
