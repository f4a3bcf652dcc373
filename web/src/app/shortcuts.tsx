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
  /** The heading in the list. */
  group?: string;
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

function grouped(shortcuts: readonly Shortcut[]): Map<string, Shortcut[]> {
  const groups = new Map<string, Shortcut[]>();
  for (const one of shortcuts) {
    const name = one.group ?? "Everywhere";
    groups.set(name, [...(groups.get(name) ?? []), one]);
  }
  return groups;
}

export function ShortcutList() {
  const { isShown, hide } = useShortcutList();
  const groups = isShown ? [...grouped([...active].flat())] : [];
  return (
    <Dialog title="Keyboard shortcuts" isOpen={isShown} onClose={hide} wide={groups.length > 1}>
      <div className={groups.length > 1 ? "grid gap-x-8 gap-y-4 md:grid-cols-2" : ""}>
        {groups.map(([name, found]) => (
          <section key={name} aria-label={name}>
            <h3 className="mb-2 text-xs font-semibold text-muted">{name}</h3>
            <dl className="grid grid-cols-[4rem_1fr] items-baseline gap-x-4 gap-y-2">
              {found.map((shortcut) => (
                <div key={shortcut.keys} className="contents">
                  <dt className="flex gap-1">
                    {shortcut.keys.split(" ").map((key) => (
                      <kbd key={key} className="rounded-sm border border-line bg-sunken px-2 font-mono text-xs">
                        {key}
                      </kbd>
                    ))}
                  </dt>
                  <dd>{shortcut.does}</dd>
                </div>
              ))}
            </dl>
          </section>
        ))}
      </div>
    </Dialog>
  );
}
