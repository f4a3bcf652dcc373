/** One item of a question, as its schema asks for it. */
import { useId } from "react";
import type { Item } from "../events/wire";
import { Button } from "../parts/Button";
import { INPUT } from "../parts/Labelled";
import { controlOf } from "./items";

interface Props {
  item: Item;
  value: unknown;
  fault: string | undefined;
  busy: boolean;
  /** `isButton`: by one of the item's buttons, which counts for more than words. */
  onGive: (value: unknown, isButton: boolean) => void;
}

export function ItemControl(props: Props) {
  const { item, value, fault, busy, onGive } = props;
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
            onChange={(event) => onGive(event.target.value, false)}
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
            onChange={(event) => onGive(event.target.value === "" ? undefined : Number(event.target.value), false)}
          />
        )}
        <Fault words={fault} />
      </div>
    );
  }
  return (
    <fieldset>
      <legend className="mb-1.5 font-medium whitespace-pre-wrap">{item.question}</legend>
      {control === "buttons" ? (
        <div className="flex flex-wrap gap-2">
          {item.buttons?.map((button) => (
            <Button
              key={button.value}
              look={value === button.value || button.value === "Accept" ? "primary" : "plain"}
              aria-pressed={value === button.value}
              disabled={busy}
              onClick={() => onGive(button.value, true)}
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
                onChange={() => onGive(control === "choices" ? toggled(chosen(value), option) : option, false)}
              />
              {option === true ? "Yes" : option === false ? "No" : String(option)}
            </label>
          ))}
        </div>
      )}
      <Fault words={fault} />
    </fieldset>
  );
}

function Fault({ words }: { words: string | undefined }) {
  return words ? <p className="mt-1 text-xs text-bad">{words}</p> : null;
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
