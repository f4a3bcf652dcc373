/** The form control of one question item, chosen by its schema. */
import { useId } from "react";
import { Button } from "../components/Button";
import { INPUT } from "../components/Labelled";
import type { Item } from "../events/messages";
import { controlOf } from "./items";

interface Props {
  item: Item;
  value: unknown;
  error: string | undefined;
  busy: boolean;
  /** `isButton`: the person pressed one of the item's buttons. */
  onAnswer: (value: unknown, isButton: boolean) => void;
}

export function ItemControl(props: Props) {
  const { item, value, error, busy, onAnswer } = props;
  const id = useId();
  const control = controlOf(item);
  if (control === "text" || control === "number") {
    return (
      <div>
        <label htmlFor={id} className="mb-1 block font-medium whitespace-pre-wrap">
          {item.question}
        </label>
        {control === "text" ? (
          <textarea
            id={id}
            rows={2}
            className={INPUT}
            value={String(value ?? "")}
            maxLength={item.schema.maxLength}
            onChange={(event) => onAnswer(event.target.value, false)}
          />
        ) : (
          <input
            id={id}
            type="number"
            className={INPUT}
            step={item.schema.type === "integer" ? 1 : "any"}
            min={item.schema.minimum}
            max={item.schema.maximum}
            value={value === undefined ? "" : String(value)}
            onChange={(event) => onAnswer(event.target.value === "" ? undefined : Number(event.target.value), false)}
          />
        )}
        <FieldError text={error} />
      </div>
    );
  }
  return (
    <fieldset>
      <legend className="mb-2 font-medium whitespace-pre-wrap">{item.question}</legend>
      {control === "buttons" ? (
        <div className="flex flex-wrap gap-2">
          {item.buttons?.map((button) => (
            <Button
              key={button.value}
              variant={value === button.value || button.value === "Accept" ? "primary" : "plain"}
              aria-pressed={value === button.value}
              disabled={busy}
              onClick={() => onAnswer(button.value, true)}
            >
              {button.label}
            </Button>
          ))}
        </div>
      ) : (
        <div className="space-y-1">
          {optionsOf(item).map((option) => (
            <label key={String(option)} className="flex items-center gap-2">
              <input
                type={control === "choices" ? "checkbox" : "radio"}
                name={id}
                checked={control === "choices" ? chosen(value).includes(option) : value === option}
                onChange={() => onAnswer(control === "choices" ? toggled(chosen(value), option) : option, false)}
              />
              {option === true ? "Yes" : option === false ? "No" : String(option)}
            </label>
          ))}
        </div>
      )}
      <FieldError text={error} />
    </fieldset>
  );
}

function FieldError({ text }: { text: string | undefined }) {
  return text ? <p className="mt-1 text-xs text-bad">{text}</p> : null;
}

function optionsOf({ schema }: Item): unknown[] {
  return schema.enum ?? schema.items?.enum ?? [true, false];
}

function chosen(value: unknown): unknown[] {
  return Array.isArray(value) ? value : [];
}

function toggled(all: unknown[], one: unknown): unknown[] {
  return all.includes(one) ? all.filter((other) => other !== one) : [...all, one];
}
