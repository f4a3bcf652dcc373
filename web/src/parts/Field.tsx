import { type InputHTMLAttributes, useId } from "react";
import { INPUT, Labelled, spokenOf, type Words } from "./Labelled";

interface Props extends Words, Omit<InputHTMLAttributes<HTMLInputElement>, "onChange" | "value"> {
  value: string;
  onChange: (value: string) => void;
}

/** A labelled line of text. */
export function Field({ label, value, onChange, hint, fault, ...rest }: Props) {
  const id = useId();
  const words = { label, hint, fault };
  return (
    <Labelled id={id} words={words}>
      <input
        {...rest}
        {...spokenOf(id, words)}
        value={value}
        onChange={(event) => onChange(event.target.value)}
        className={INPUT}
      />
    </Labelled>
  );
}
