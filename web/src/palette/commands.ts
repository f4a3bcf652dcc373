/** What the command palette offers, and how it finds it. */
import type { LucideIcon } from "lucide-react";

export interface Command {
  /** Unique in the palette. */
  id: string;
  group: string;
  label: string;
  /** Shown in grey, and searched too. */
  detail?: string;
  /** Text that the server has found. The command is offered whatever its label is. */
  excerpt?: string;
  icon: LucideIcon;
  run: () => void;
}

const MOST_PER_GROUP = 6;

/** The commands that have every word of the text, best first, and at most some of each group. */
export function matching(commands: readonly Command[], text: string): Command[] {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const found = commands
    .map((command, at) => ({ command, at, rank: rankOf(command, words) }))
    .filter(({ rank }) => rank > 0)
    .sort((one, other) => other.rank - one.rank || one.at - other.at);
  const counts = new Map<string, number>();
  const shown = found.filter(({ command: { group } }) => {
    const count = (counts.get(group) ?? 0) + 1;
    counts.set(group, count);
    return count <= MOST_PER_GROUP;
  });
  return grouped(shown.map(({ command }) => command));
}

/** 0: not found. A label that begins with a word is better than one that contains it, and that than the detail. */
function rankOf({ label, detail = "", excerpt }: Command, words: readonly string[]): number {
  if (excerpt !== undefined) return 1;
  const name = label.toLowerCase();
  let rank = 1;
  for (const word of words) {
    if (name.startsWith(word)) rank += 4;
    else if (name.includes(` ${word}`) || name.includes(`/${word}`)) rank += 3;
    else if (name.includes(word)) rank += 2;
    else if (detail.toLowerCase().includes(word)) rank += 1;
    else return 0;
  }
  return rank;
}

/** Brings the commands of a group together, in the order of the groups' first commands. */
function grouped(commands: readonly Command[]): Command[] {
  const groups = new Map<string, Command[]>();
  for (const command of commands) groups.set(command.group, [...(groups.get(command.group) ?? []), command]);
  return [...groups.values()].flat();
}
