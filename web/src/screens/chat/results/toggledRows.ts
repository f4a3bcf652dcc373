/** Calls and groups that a person expanded or collapsed. Kept outside of them, because rows unmount while scrolling. */
import { create } from "zustand";

interface Toggled {
  open: Readonly<Record<string, boolean>>;
  toggle: (id: string, isOpen: boolean) => void;
}

export const useToggled = create<Toggled>((set) => ({
  open: {},
  toggle: (id, isOpen) => set((before) => ({ open: { ...before.open, [id]: isOpen } })),
}));
