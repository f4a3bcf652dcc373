import type { ReactNode } from "react";

const FRAME =
  "w-full rounded-md border border-line-strong bg-surface text-ink placeholder:text-muted aria-[invalid=true]:border-bad";
/** As high as a button beside it. A text area has room above its first line. */
export const INPUT = `${FRAME} min-h-9 pointer-coarse:min-h-11 px-3 py-1 [&:is(textarea)]:py-2`;
export const SMALL_INPUT = `${FRAME} min-h-7 pointer-coarse:min-h-9 px-1 text-xs`;

/** Label, hint and error of a form field. */
export interface FieldText {
  label: string;
  hint?: string | undefined;
  /** What is wrong with the value. */
  error?: string | undefined;
}

/** Attributes that connect an input with its label, hint and error. */
export function inputAttributes(id: string, { hint, error }: FieldText) {
  return {
    id,
    "aria-invalid": error !== undefined,
    "aria-describedby": hint || error ? `${id}-note` : undefined,
  };
}

/** A label above an input, and a hint or an error below it. */
export function Labelled({ id, text, children }: { id: string; text: FieldText; children: ReactNode }) {
  const { label, hint, error } = text;
  return (
    <div>
      <label htmlFor={id} className="mb-1 block text-sm font-medium">
        {label}
      </label>
      {children}
      {(hint || error) && (
        <p id={`${id}-note`} className={`mt-1 text-xs ${error ? "text-bad" : "text-muted"}`}>
          {error ?? hint}
        </p>
      )}
    </div>
  );
}
