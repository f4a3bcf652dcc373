import { useEffect } from "react";

/** Sets the title of the browser tab. */
export function useTitle(...parts: (string | null | undefined)[]): void {
  const title = [...parts, "Toolcrib"].filter(Boolean).join(" · ");
  useEffect(() => {
    document.title = title;
  }, [title]);
}
