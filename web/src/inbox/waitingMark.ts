/** Marks the browser tab while something waits: a count in its title, and a dot on its icon. */
import { useEffect } from "react";

const DOT = '<circle cx="24" cy="8" r="8" fill="#f59f00" stroke="#fff" stroke-width="2"/>';
let plainIcon: Promise<string> | null = null;

export function titled(title: string, waiting: number): string {
  return waiting > 0 ? `(${waiting}) ${title}` : title;
}

/** Puts a dot on the icon of the tab while `waiting` is not zero. */
export function useIconMark(waiting: number): void {
  const isMarked = waiting > 0;
  useEffect(() => {
    if (!isMarked) return;
    let isOver = false;
    plainIcon ??= fetch("/icon.svg").then((response) => response.text());
    void plainIcon.then(
      (svg) => {
        if (!isOver) setIcon(`data:image/svg+xml,${encodeURIComponent(svg.replace("</svg>", `${DOT}</svg>`))}`);
      },
      () => {
        plainIcon = null;
      },
    );
    return () => {
      isOver = true;
      setIcon("/icon.svg");
    };
  }, [isMarked]);
}

function setIcon(address: string): void {
  document.querySelector<HTMLLinkElement>('link[rel="icon"]')?.setAttribute("href", address);
}
