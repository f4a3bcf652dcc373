import { useEffect } from "react";

/** Names the browser's tab after what it shows. */
export function useTitle(...parts: (string | null | undefined)[]): void {
  const title = [...parts, "Toolcrib"].filter(Boolean).join(" · ");
  useEffect(() => {
    document.title = title;
  }, [title]);
}
