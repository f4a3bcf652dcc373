import { useId } from "react";
import { INPUT, SMALL_INPUT } from "./Labelled";

interface Props {
  label: string;
  value: string;
  onChange: (value: string) => void;
  /** Value to label, in order. */
  options: Record<string, string>;
  /** Show the label to screen readers only. */
  isLabelHidden?: boolean;
  disabled?: boolean;
  small?: boolean;
}

/** A native select, which works with every keyboard and phone. */
export function Select({ label, value, onChange, options, isLabelHidden, disabled, small }: Props) {
  const id = useId();
  return (
    <div>
      <label htmlFor={id} className={isLabelHidden ? "sr-only" : "mb-1 block text-sm font-medium"}>
        {label}
      </label>
      <select
        id={id}
        value={value}
        disabled={disabled}
        onChange={(event) => onChange(event.target.value)}
        className={small ? SMALL_INPUT : INPUT}
      >
        {Object.entries(options).map(([option, text]) => (
          <option key={option} value={option}>
            {text}
          </option>
        ))}
      </select>
    </div>
  );
}
