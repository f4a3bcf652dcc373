import type { ReactNode } from "react";

export type Tone = "plain" | "good" | "warn" | "bad" | "accent";

const TONES: Record<Tone, string> = {
  plain: "bg-sunken text-muted border-line",
  good: "bg-good-soft text-good border-transparent",
  warn: "bg-warn-soft text-warn border-transparent",
  bad: "bg-bad-soft text-bad border-transparent",
  accent: "bg-accent-soft text-accent border-transparent",
};

export function Badge({ tone = "plain", title, children }: { tone?: Tone; title?: string; children: ReactNode }) {
  return (
    <span
      title={title}
      className={`inline-flex items-center gap-1 rounded-sm border px-2 text-2xs whitespace-nowrap ${TONES[tone]}`}
    >
      {children}
    </span>
  );
}
