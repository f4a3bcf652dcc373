import { type TextareaHTMLAttributes, useId } from "react";
import { INPUT, Labelled, spokenOf, type Words } from "./Labelled";

interface Props extends Words, Omit<TextareaHTMLAttributes<HTMLTextAreaElement>, "onChange" | "value"> {
  value: string;
  onChange: (value: string) => void;
  /** For what machines read. */
  isCode?: boolean;
}

/** Labelled text of several lines. */
export function TextArea({ label, value, onChange, hint, fault, isCode, ...rest }: Props) {
  const id = useId();
  const words = { label, hint, fault };
  return (
    <Labelled id={id} words={words}>
      <textarea
        {...rest}
        {...spokenOf(id, words)}
        value={value}
        spellCheck={!isCode}
        onChange={(event) => onChange(event.target.value)}
        className={`${INPUT} ${isCode ? "font-mono text-xs leading-5" : ""}`}
      />
    </Labelled>
  );
}
