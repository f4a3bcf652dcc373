/** The items of a question: how each is answered, and which plan they are about. Pure. */
import type { Item } from "../events/wire";

export type Control = "buttons" | "choice" | "choices" | "yesno" | "number" | "text";

/** How an item is answered, by its schema. */
export function controlOf({ schema, buttons }: Item): Control {
  const type = Array.isArray(schema.type) ? schema.type[0] : schema.type;
  if (buttons && buttons.length > 0) return "buttons";
  if (type === "array" && schema.items?.enum) return "choices";
  if (schema.enum) return "choice";
  if (type === "boolean") return "yesno";
  if (type === "number" || type === "integer") return "number";
  return "text";
}

/** What stands in the form before anyone has touched it. */
export function initialAnswer(item: Item): unknown {
  if (item.schema.default !== undefined) return item.schema.default;
  return controlOf(item) === "choices" ? [] : undefined;
}

/** Whether the agent asks for a plan to be accepted. */
export function isPlanReview(items: readonly Item[]): boolean {
  return items.some((item) => ["Accept", "Reject"].every((word) => item.buttons?.some(({ value }) => value === word)));
}

/** The plan that a question names, or else the last one that was written. */
export function planNamed(items: readonly Item[], last: string | null): string | null {
  const named = items.map((item) => /\/?plans\/[\w./-]+\.plan/.exec(item.question)?.[0]).find(Boolean);
  return named ? `/${named.replace(/^\//, "")}` : last;
}
