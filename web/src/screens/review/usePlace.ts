/** Where a person is in a review: what has the focus, which keys act on, and the file at the top, which they only move from. */
import { useCallback, useEffect, useRef, useState } from "react";
import { anchorOf } from "./FileReview";
import type { ReviewFile } from "./reviewFiles";
import type { Place } from "./reviewKeys";

/** Frames to wait until a hunk that was far away is rendered. */
const PATIENCE = 120;
/** The height of a file's head, which covers what is below it, in pixels. */
const HEAD = 48;
/** The height of a change's head, in pixels. */
const HUNK_HEAD = 28;

/** What a person does to move the page. */
const MOVES = ["wheel", "touchmove", "pointerdown", "keydown"] as const;

export interface Places {
  /** Where the person is, for the tree: what keys have reached, or what was scrolled to. */
  place: Place | null;
  /** What has the focus. */
  focused: Place | null;
  go: (place: Place, isFocused?: boolean) => void;
  /** Where the next step starts. */
  from: () => Place | null;
  /** What has the focus and is in sight. What is out of sight is brought into it, and `null` returned. */
  target: () => Place | null;
}

export function usePlace(area: HTMLElement | null, files: readonly ReviewFile[]): Places {
  const [place, setPlace] = useState<Place | null>(null);
  const [focused, setFocused] = useState<Place | null>(null);
  /** A file near the end cannot reach the top; it stays current until the person scrolls. */
  const chosenAt = useRef<number | null>(null);
  /** The place that `go` still waits for. */
  const wanted = useRef<Place | null>(null);
  /** What had the focus last. */
  const reached = useRef<Place | null>(null);
  /** A key or a click has brought the person here, and they have not scrolled since. */
  const isHeld = useRef(false);
  useEffect(() => {
    if (area === null) return;
    let frame = 0;
    const find = () => {
      frame = 0;
      if (chosenAt.current !== null && Math.abs(area.scrollTop - chosenAt.current) < 4) return;
      chosenAt.current = null;
      const top = area.getBoundingClientRect().top + 60;
      const shown = [...area.querySelectorAll<HTMLElement>("article[data-path]")];
      const path = shown.find((one) => one.getBoundingClientRect().bottom > top)?.dataset.path;
      setPlace((before) => (before?.path === path ? before : path === undefined ? null : { path, hunk: null }));
    };
    const scrolled = () => {
      frame ||= requestAnimationFrame(find);
    };
    let held: Element | null = null;
    const moved = () => {
      held = document.activeElement;
      const now = placeOfElement(held);
      setFocused((before) => (isSame(before, now) ? before : now));
      if (now === null) return;
      wanted.current = null;
      reached.current = now;
      chosenAt.current = area.scrollTop;
      setPlace((before) => (isSame(before, now) ? before : now));
    };
    const left = () => {
      setFocused(null);
      // Gone by a person's click, not by a change of the page.
      requestAnimationFrame(() => {
        if (document.activeElement === document.body && held?.isConnected) held = null;
      });
    };
    // What has the focus is rendered anew when lines open above it. The focus stays where it was.
    const rendered = new MutationObserver(() => {
      if (held === null || held.isConnected || document.activeElement !== document.body) return;
      const [found, isExact] = reached.current === null ? [null, false] : elementOf(reached.current);
      if (isExact) found?.focus({ preventScroll: true });
    });
    rendered.observe(area, { childList: true, subtree: true });
    // Files above that load their lines push it out of sight, and something else into its place.
    const grown = new ResizeObserver(() => {
      const element = document.activeElement;
      if (isHeld.current && placeOfElement(element) !== null && !isInSight(area, element)) {
        element?.scrollIntoView({ block: "start" });
        chosenAt.current = area.scrollTop;
      }
    });
    if (area.firstElementChild !== null) grown.observe(area.firstElementChild);
    const release = () => {
      isHeld.current = false;
    };
    for (const name of MOVES) area.addEventListener(name, release, { passive: true });
    area.addEventListener("scroll", scrolled, { passive: true });
    area.addEventListener("focusin", moved);
    area.addEventListener("focusout", left);
    return () => {
      area.removeEventListener("scroll", scrolled);
      area.removeEventListener("focusin", moved);
      area.removeEventListener("focusout", left);
      rendered.disconnect();
      grown.disconnect();
      for (const name of MOVES) area.removeEventListener(name, release);
      cancelAnimationFrame(frame);
    };
  }, [area]);

  /** Shows a place and gives it the focus, as soon as it is rendered. */
  const go = useCallback(
    (next: Place, isFocused = true) => {
      if (area === null) return;
      wanted.current = next;
      isHeld.current = true;
      setPlace(next);
      let frames = 0;
      const show = () => {
        if (wanted.current !== next) return;
        const [found, isExact] = elementOf(next);
        if (found !== null) {
          if (!isInUpperHalf(area, found)) found.scrollIntoView({ block: "start" });
          chosenAt.current = area.scrollTop;
          if (isExact && isFocused) found.focus({ preventScroll: true });
        }
        if (!isExact && frames++ < PATIENCE) requestAnimationFrame(show);
        else wanted.current = null;
      };
      show();
    },
    [area],
  );
  const first = files[0];
  const isKnown = files.some(({ path }) => path === place?.path);
  const shown = isKnown ? place : first ? { path: first.path, hunk: null } : null;
  const latest = useRef(shown);
  latest.current = shown;

  const from = useCallback(() => {
    const element = document.activeElement;
    if (wanted.current !== null) return wanted.current;
    const at = placeOfElement(element);
    return at !== null && area !== null && isInSight(area, element) ? at : latest.current;
  }, [area]);
  const target = useCallback(() => {
    const element = document.activeElement;
    const at = placeOfElement(element);
    // A jump is still on its way: what has the focus is what was left.
    if (at === null || area === null || wanted.current !== null) return null;
    if (isInSight(area, element)) return at;
    element?.scrollIntoView({ block: "center" });
    return null;
  }, [area]);
  return { place: shown, focused, go, from, target };
}

/** What `placeOfElement` needs of an element. */
interface Focusable {
  closest: (selector: string) => { dataset: DOMStringMap } | null;
}

/** Returns the change or file that an element belongs to: the head of a change, one of its lines, or anything in a file. */
export function placeOfElement(element: object | null): Place | null {
  if (element === null || !("closest" in element)) return null;
  const { closest } = element as Focusable;
  const path = closest.call(element, "article[data-path]")?.dataset.path;
  if (path === undefined) return null;
  const part = closest.call(element, "[data-hunk], [data-line-of]")?.dataset;
  return { path, hunk: part?.hunk ?? part?.lineOf ?? null };
}

function isSame(one: Place | null, other: Place | null): boolean {
  return one === other || (one !== null && one.path === other?.path && one.hunk === other.hunk);
}

/** Whether a person sees what the focus stands for: a change, down to the next one; or else the file. */
function isInSight(area: HTMLElement, element: Element | null): boolean {
  const article = element?.closest("article");
  if (!element || !article) return false;
  const view = area.getBoundingClientRect();
  const whole = article.getBoundingClientRect();
  const isChange = element.matches("[data-hunk], [data-line-of]");
  const top = isChange ? element.getBoundingClientRect().top : whole.top;
  let bottom = whole.bottom;
  if (isChange) {
    // A part that is not rendered names the changes in it.
    const heads = article.querySelectorAll<HTMLElement>('[data-hunk], [data-hunks]:empty:not([data-hunks=""])');
    for (const head of heads) {
      if (element.compareDocumentPosition(head) & Node.DOCUMENT_POSITION_FOLLOWING) {
        bottom = head.getBoundingClientRect().top;
        break;
      }
    }
  }
  return isSeen({ top, bottom }, { top: view.top + HEAD, bottom: view.bottom });
}

interface Extent {
  top: number;
  bottom: number;
}

/** Whether the head of a part is in the view, or half of it, or else it fills half of the view: not a rest at an edge. */
export function isSeen({ top, bottom }: Extent, view: Extent): boolean {
  if (top >= view.top - HUNK_HEAD / 2 && top <= view.bottom - HUNK_HEAD / 2) return true;
  const visible = Math.min(bottom, view.bottom) - Math.max(top, view.top);
  return visible > 0 && visible >= Math.min(bottom - top, view.bottom - view.top) / 2;
}

/** The element of a place; or of the part of the file where it will be, and whether it is the place itself. */
function elementOf({ path, hunk }: Place): [HTMLElement | null, boolean] {
  const article = document.getElementById(anchorOf(path));
  if (article === null || hunk === null) return [article, article !== null];
  const exact = article.querySelector<HTMLElement>(`[data-hunk="${CSS.escape(hunk)}"]`);
  if (exact !== null) return [exact, true];
  return [article.querySelector<HTMLElement>(`[data-hunks~="${CSS.escape(hunk)}"]`) ?? article, false];
}

function isInUpperHalf(area: HTMLElement, element: HTMLElement): boolean {
  const { top, height } = area.getBoundingClientRect();
  const place = element.getBoundingClientRect().top - top;
  return place >= (element.dataset.hunk === undefined ? 0 : HEAD) && place <= height / 2;
}
