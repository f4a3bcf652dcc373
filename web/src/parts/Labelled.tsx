import type { ReactNode } from "react";

export const INPUT =
  "w-full rounded-md border border-line-strong bg-surface px-3 py-1.5 text-ink placeholder:text-muted aria-[invalid=true]:border-bad";

/** What is said of a value beside the value itself. */
export interface Words {
  label: string;
  hint?: string | undefined;
  /** What is wrong with the value. */
  fault?: string | undefined;
}

/** The attributes by which an input is known to be the one that the words are about. */
export function spokenOf(id: string, { hint, fault }: Words) {
  return {
    id,
    "aria-invalid": fault !== undefined,
    "aria-describedby": hint || fault ? `${id}-note` : undefined,
  };
}

/** A label above an input, and a hint or what is wrong below it. */
export function Labelled({ id, words, children }: { id: string; words: Words; children: ReactNode }) {
  const { label, hint, fault } = words;
  return (
    <div>
      <label htmlFor={id} className="mb-1 block text-sm font-medium">
        {label}
      </label>
      {children}
      {(hint || fault) && (
        <p id={`${id}-note`} className={`mt-1 text-xs ${fault ? "text-bad" : "text-muted"}`}>
          {fault ?? hint}
        </p>
      )}
    </div>
  );
}
