import { type InputHTMLAttributes, useId } from "react";
import { type FieldText, INPUT, inputAttributes, Labelled } from "./Labelled";

interface Props extends FieldText, Omit<InputHTMLAttributes<HTMLInputElement>, "onChange" | "value"> {
  value: string;
  onChange: (value: string) => void;
}

/** A labelled text input. */
export function Field({ label, value, onChange, hint, error, ...rest }: Props) {
  const id = useId();
  const text = { label, hint, error };
  return (
    <Labelled id={id} text={text}>
      <input
        {...rest}
        {...inputAttributes(id, text)}
        value={value}
        onChange={(event) => onChange(event.target.value)}
        className={INPUT}
      />
    </Labelled>
  );
}
