/** Keyboard shortcuts. `?` lists them; they are disabled while a person types. */
import { useEffect } from "react";
import { create } from "zustand";
import { Dialog } from "../components/Dialog";

interface Shown {
  isShown: boolean;
  show: () => void;
  hide: () => void;
}

export const useShortcutList = create<Shown>((set) => ({
  isShown: false,
  show: () => set({ isShown: true }),
  hide: () => set({ isShown: false }),
}));

export interface Shortcut {
  /** One key, or two keys separated by a space. */
  keys: string;
  does: string;
  act: () => void;
}

const active = new Set<readonly Shortcut[]>();
let first = "";

/** The shortcuts of what is shown now. */
export function activeShortcuts(): Shortcut[] {
  return [...active].flat();
}

/** Registers shortcuts while the component is mounted. Pass a stable array. */
export function useShortcuts(shortcuts: readonly Shortcut[]): void {
  useEffect(() => {
    active.add(shortcuts);
    return () => {
      active.delete(shortcuts);
    };
  }, [shortcuts]);
}

/** Handles key presses of the whole page. Call once, in the root. */
export function useShortcutKeys(): void {
  useEffect(() => {
    window.addEventListener("keydown", handleKey);
    return () => window.removeEventListener("keydown", handleKey);
  }, []);
}

function handleKey(event: KeyboardEvent): void {
  if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
  if (document.querySelector("dialog[open]")) return;
  const typed = first ? `${first} ${event.key}` : event.key;
  first = "";
  const all = [...active].flat();
  const found = all.find((one) => one.keys === typed);
  if (found) {
    event.preventDefault();
    found.act();
    return;
  }
  if (all.some((one) => one.keys.startsWith(`${event.key} `))) first = event.key;
}

function isTyping(target: EventTarget | null): boolean {
  return (
    target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName))
  );
}

export function ShortcutList() {
  const { isShown, hide } = useShortcutList();
  return (
    <Dialog title="Keyboard shortcuts" isOpen={isShown} onClose={hide}>
      <dl className="grid grid-cols-[auto_1fr] items-center gap-x-4 gap-y-2">
        {isShown &&
          [...active].flat().map((shortcut) => (
            <div key={shortcut.keys} className="contents">
              <dt className="flex gap-1">
                {shortcut.keys.split(" ").map((key) => (
                  <kbd key={key} className="rounded border border-line bg-sunken px-1.5 font-mono text-xs">
                    {key}
                  </kbd>
                ))}
              </dt>
              <dd>{shortcut.does}</dd>
            </div>
          ))}
      </dl>
    </Dialog>
  );
}
