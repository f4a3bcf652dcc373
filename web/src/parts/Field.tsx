import { type InputHTMLAttributes, useId } from "react";

export const INPUT =
  "w-full rounded-md border border-line-strong bg-surface px-3 py-1.5 text-ink placeholder:text-muted aria-[invalid=true]:border-bad";

interface Props extends Omit<InputHTMLAttributes<HTMLInputElement>, "onChange" | "value"> {
  label: string;
  value: string;
  onChange: (value: string) => void;
  hint?: string | undefined;
  /** What is wrong with the value. */
  fault?: string | undefined;
}

/** A labelled line of text. */
export function Field({ label, value, onChange, hint, fault, ...rest }: Props) {
  const id = useId();
  return (
    <div>
      <label htmlFor={id} className="mb-1 block text-sm font-medium">
        {label}
      </label>
      <input
        {...rest}
        id={id}
        value={value}
        onChange={(event) => onChange(event.target.value)}
        aria-invalid={fault !== undefined}
        aria-describedby={hint || fault ? `${id}-note` : undefined}
        className={INPUT}
      />
      {(hint || fault) && (
        <p id={`${id}-note`} className={`mt-1 text-xs ${fault ? "text-bad" : "text-muted"}`}>
          {fault ?? hint}
        </p>
      )}
    </div>
  );
}
