import { type TextareaHTMLAttributes, useId } from "react";
import { INPUT } from "./Field";

interface Props extends Omit<TextareaHTMLAttributes<HTMLTextAreaElement>, "onChange" | "value"> {
  label: string;
  value: string;
  onChange: (value: string) => void;
  hint?: string | undefined;
  /** What is wrong with the value. */
  fault?: string | undefined;
  /** For what machines read. */
  isCode?: boolean;
}

/** Labelled text of several lines. */
export function TextArea({ label, value, onChange, hint, fault, isCode, ...rest }: Props) {
  const id = useId();
  return (
    <div>
      <label htmlFor={id} className="mb-1 block text-sm font-medium">
        {label}
      </label>
      <textarea
        {...rest}
        id={id}
        value={value}
        spellCheck={!isCode}
        onChange={(event) => onChange(event.target.value)}
        aria-invalid={fault !== undefined}
        aria-describedby={hint || fault ? `${id}-note` : undefined}
        className={`${INPUT} ${isCode ? "font-mono text-xs leading-5" : ""}`}
      />
      {(hint || fault) && (
        <p id={`${id}-note`} className={`mt-1 text-xs ${fault ? "text-bad" : "text-muted"}`}>
          {fault ?? hint}
        </p>
      )}
    </div>
  );
}
