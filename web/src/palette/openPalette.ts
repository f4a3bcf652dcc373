/** Whether the command palette is open, and the key that opens it. */
import { useEffect } from "react";
import { create } from "zustand";

interface Palette {
  isOpen: boolean;
  toggle: () => void;
  close: () => void;
}

export const usePalette = create<Palette>((set) => ({
  isOpen: false,
  toggle: () => set(({ isOpen }) => ({ isOpen: !isOpen })),
  close: () => set({ isOpen: false }),
}));

/** How the key is called on this machine. */
export const PALETTE_KEY = /Mac|iPhone|iPad/.test(navigator.platform) ? "⌘K" : "Ctrl K";

/** Ctrl+K or Cmd+K, also while a person types. */
export function usePaletteKey(): void {
  const toggle = usePalette((palette) => palette.toggle);
  useEffect(() => {
    function handle(event: KeyboardEvent): void {
      if (event.key.toLowerCase() !== "k" || !(event.ctrlKey || event.metaKey) || event.altKey || event.shiftKey)
        return;
      event.preventDefault();
      toggle();
    }
    window.addEventListener("keydown", handle);
    return () => window.removeEventListener("keydown", handle);
  }, [toggle]);
}
