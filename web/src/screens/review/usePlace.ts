/** Where a person is in a review: the file at the top of the area, and the hunk that keys have reached. */
import { useCallback, useEffect, useRef, useState } from "react";
import { anchorOf } from "./FileReview";
import type { ReviewFile } from "./reviewFiles";
import type { Place } from "./reviewKeys";

/** Frames to wait until a hunk that was far away is rendered. */
const PATIENCE = 120;
/** The height of a file's head, which covers what is below it, in pixels. */
const HEAD = 48;

export function usePlace(area: HTMLElement | null, files: readonly ReviewFile[]) {
  const [place, setPlace] = useState<Place | null>(null);
  /** A file near the end cannot reach the top; it stays current until the person scrolls. */
  const chosenAt = useRef<number | null>(null);
  const wanted = useRef<Place | null>(null);
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
    area.addEventListener("scroll", scrolled, { passive: true });
    return () => {
      area.removeEventListener("scroll", scrolled);
      cancelAnimationFrame(frame);
    };
  }, [area]);

  /** Shows a place and gives it the focus, as soon as it is rendered. */
  const go = useCallback(
    (next: Place, isFocused = true) => {
      if (area === null) return;
      wanted.current = next;
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
      };
      show();
    },
    [area],
  );
  const first = files[0];
  const isKnown = files.some(({ path }) => path === place?.path);
  const shown = isKnown ? place : first ? { path: first.path, hunk: null } : null;
  return { place: shown, go };
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
