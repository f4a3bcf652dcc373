/** The items of a question: their form controls and the plan that they name. Pure. */
import type { Item } from "../events/messages";

export type Control = "buttons" | "choice" | "choices" | "yesno" | "number" | "text";

/** Returns the form control for an item's schema. */
export function controlOf({ schema, buttons }: Item): Control {
  const type = Array.isArray(schema.type) ? schema.type[0] : schema.type;
  if (buttons && buttons.length > 0) return "buttons";
  if (type === "array" && schema.items?.enum) return "choices";
  if (schema.enum) return "choice";
  if (type === "boolean") return "yesno";
  if (type === "number" || type === "integer") return "number";
  return "text";
}

/** The answers that can be chosen, as a person reads them. */
export function optionsOf(item: Item): string[] {
  const { schema, buttons } = item;
  switch (controlOf(item)) {
    case "buttons":
      return (buttons ?? []).map(({ label }) => label);
    case "yesno":
      return ["Yes", "No"];
    case "choice":
    case "choices":
      return (schema.enum ?? schema.items?.enum ?? []).map(String);
    default:
      return [];
  }
}

/** Returns the initial value of an item. */
export function initialAnswer(item: Item): unknown {
  if (item.schema.default !== undefined) return item.schema.default;
  return controlOf(item) === "choices" ? [] : undefined;
}

/** Whether the question is a plan review. */
export function isPlanReview(items: readonly Item[]): boolean {
  return items.some((item) => ["Accept", "Reject"].every((word) => item.buttons?.some(({ value }) => value === word)));
}

/** Returns the plan that the question names, or else the last written one. */
export function planNamed(items: readonly Item[], last: string | null): string | null {
  const named = items.map((item) => /\/?plans\/[\w./-]+\.plan/.exec(item.question)?.[0]).find(Boolean);
  return named ? `/${named.replace(/^\//, "")}` : last;
}
