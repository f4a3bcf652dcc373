/** Who somebody is, at a glance: initials on a colour that stays the same. */
import { Bot } from "lucide-react";
import { escapedLine } from "./shownText";

const COLOURS = [
  "bg-accent text-on-accent",
  "bg-good text-surface",
  "bg-violet text-surface",
  "bg-teal text-surface",
  "bg-warn text-surface",
  "bg-muted text-surface",
] as const;

const SIZES = { small: "size-6 text-2xs", usual: "size-7 text-2xs" } as const;

interface Props {
  /** The id of the person: the colour depends on it, so that it survives a change of name. */
  id: string;
  name: string;
  size?: keyof typeof SIZES;
}

export function Avatar({ id, name, size = "usual" }: Props) {
  return (
    <span
      aria-hidden
      title={escapedLine(name)}
      className={`inline-flex shrink-0 items-center justify-center rounded-full font-semibold select-none ${SIZES[size]} ${colourOf(id)}`}
    >
      {initialsOf(name)}
    </span>
  );
}

export function AgentAvatar() {
  return (
    <span
      aria-hidden
      className="inline-flex size-7 shrink-0 items-center justify-center rounded-lg border border-line bg-surface text-accent"
    >
      <Bot className="size-4" />
    </span>
  );
}

export function initialsOf(name: string): string {
  const words = (name.split("@")[0] ?? "").split(/[\s._-]+/).filter((word) => /\p{L}|\p{N}/u.test(word));
  const letters = words.length > 1 ? [words[0], words.at(-1)] : [words[0]];
  return letters.map((word) => [...(word ?? "?")][0]?.toUpperCase() ?? "").join("");
}

function colourOf(id: string): string {
  let sum = 0;
  for (const character of id) sum = (sum * 31 + character.charCodeAt(0)) >>> 0;
  return COLOURS[sum % COLOURS.length] as string;
}
