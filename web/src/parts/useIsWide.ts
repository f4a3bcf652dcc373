import { useSyncExternalStore } from "react";

/** Whether the window is at least so many pixels wide, as it is now. */
export function useIsWide(pixels: number): boolean {
  const query = `(min-width: ${pixels}px)`;
  return useSyncExternalStore(
    (tell) => {
      const matching = matchMedia(query);
      matching.addEventListener("change", tell);
      return () => matching.removeEventListener("change", tell);
    },
    () => matchMedia(query).matches,
  );
}
