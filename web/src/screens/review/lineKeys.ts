/** Keys on the lines of a change: the arrows go from line to line, and `c` comments on the one that has the focus. */
import type { KeyboardEvent } from "react";
import type { ReviewFile, ReviewHunk } from "./reviewFiles";

const STEPS: Record<string, number> = { ArrowDown: 1, ArrowUp: -1 };

/** Handles a key press on a change or on one of its lines. */
export function lineKeyed(event: KeyboardEvent): void {
  const { target } = event;
  if (!(target instanceof HTMLElement) || event.ctrlKey || event.metaKey || event.altKey) return;
  const hunk = target.dataset.hunk ?? target.dataset.lineOf;
  if (hunk === undefined) return;
  if (event.key === "c" && target.dataset.lineOf !== undefined) {
    event.preventDefault();
    // Not also the key of the page, which comments on the first line.
    event.stopPropagation();
    target.click();
    return;
  }
  const step = STEPS[event.key];
  if (step === undefined) return;
  const next = nextTo(target, hunk, step);
  if (next === undefined) return;
  event.preventDefault();
  next.focus();
  next.scrollIntoView({ block: "nearest" });
}

export function toFirstLine(file: ReviewFile, hunk: ReviewHunk | null): void {
  const name = CSS.escape((hunk ?? file.hunks[0])?.id ?? "");
  const article = document.querySelector(`article[data-path="${CSS.escape(file.path)}"]`);
  article?.querySelector<HTMLElement>(`[data-line-of="${name}"]`)?.focus();
}

/** Presses the button that loads more lines of a file, if it has one. */
export function loadMore(file: ReviewFile): void {
  document.querySelector<HTMLElement>(`article[data-path="${CSS.escape(file.path)}"] [data-more]`)?.click();
}

/** The nearest one on another row: the head of the change, or a line of it. Of two side by side, the one below or above. */
function nextTo(target: HTMLElement, hunk: string, step: number): HTMLElement | undefined {
  const name = CSS.escape(hunk);
  // The same change of two files has the same name.
  const found = target
    .closest("article")
    ?.querySelectorAll<HTMLElement>(`[data-hunk="${name}"], [data-line-of="${name}"]`);
  const all = [...(found ?? [])];
  const at = all.indexOf(target);
  const ahead = step > 0 ? all.slice(at + 1) : all.slice(0, at).reverse();
  const [first, ...others] = ahead.filter((one) => topOf(one) !== topOf(target));
  const beside = others.filter((one) => first !== undefined && topOf(one) === topOf(first));
  return beside.find((one) => leftOf(one) === leftOf(target)) ?? first;
}

const topOf = (element: HTMLElement) => Math.round(element.getBoundingClientRect().top);
const leftOf = (element: HTMLElement) => Math.round(element.getBoundingClientRect().left);
