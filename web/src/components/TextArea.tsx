import { type TextareaHTMLAttributes, useId } from "react";
import { type FieldText, INPUT, inputAttributes, Labelled } from "./Labelled";

interface Props extends FieldText, Omit<TextareaHTMLAttributes<HTMLTextAreaElement>, "onChange" | "value"> {
  value: string;
  onChange: (value: string) => void;
  /** Use a monospace font and no spell check. */
  isCode?: boolean;
}

/** A labelled text area. */
export function TextArea({ label, value, onChange, hint, error, isCode, ...rest }: Props) {
  const id = useId();
  const text = { label, hint, error };
  return (
    <Labelled id={id} text={text}>
      <textarea
        {...rest}
        {...inputAttributes(id, text)}
        value={value}
        spellCheck={!isCode}
        onChange={(event) => onChange(event.target.value)}
        className={`${INPUT} ${isCode ? "font-mono text-xs leading-5" : ""}`}
      />
    </Labelled>
  );
}
