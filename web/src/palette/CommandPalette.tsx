/** Goes anywhere and does anything by typing a few letters. Loaded when it is first opened. */
import { Search } from "lucide-react";
import { type KeyboardEvent, useEffect, useId, useRef, useState } from "react";
import { type Command, matching } from "./commands";
import { usePalette } from "./openPalette";
import { useCommands } from "./useCommands";

export default function CommandPalette({ workspaceId }: { workspaceId: string }) {
  const { isOpen, close } = usePalette();
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    if (isOpen && !dialog.current?.open) dialog.current?.showModal();
    if (!isOpen) dialog.current?.close();
  }, [isOpen]);
  return (
    // biome-ignore lint/a11y/useKeyWithClickEvents: Escape closes a native dialog
    <dialog
      ref={dialog}
      aria-label="Command palette"
      onClose={close}
      onClick={(event) => {
        if (event.target === dialog.current) close();
      }}
      className="mx-auto mt-[12vh] mb-auto w-[calc(100%-1.5rem)] max-w-xl overflow-hidden rounded-xl border border-line bg-raised p-0 text-ink shadow-float backdrop:bg-[rgb(0_0_0/0.35)]"
    >
      {isOpen && <Contents workspaceId={workspaceId} onDone={close} />}
    </dialog>
  );
}

function Contents({ workspaceId, onDone }: { workspaceId: string; onDone: () => void }) {
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const id = useId();
  const found = matching(useCommands(workspaceId, text), text);
  const current = Math.min(at, found.length - 1);
  const optionId = (index: number) => `${id}-${index}`;

  useEffect(() => {
    document.getElementById(`${id}-${current}`)?.scrollIntoView({ block: "nearest" });
  }, [id, current]);

  function run(command: Command | undefined): void {
    if (command === undefined) return;
    onDone();
    command.run();
  }

  function handleKey(event: KeyboardEvent): void {
    const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (step !== 0) {
      event.preventDefault();
      setAt((current + step + found.length) % Math.max(found.length, 1));
    } else if (event.key === "Enter") {
      event.preventDefault();
      run(found[current]);
    }
  }

  return (
    <>
      <div className="flex items-center gap-3 border-b border-line px-4">
        <Search aria-hidden className="size-4 shrink-0 text-muted" />
        <input
          role="combobox"
          aria-label="Go to a screen, a session or a file, or do something"
          aria-expanded
          aria-controls={id}
          aria-activedescendant={found.length > 0 ? optionId(current) : undefined}
          placeholder="Go to a screen, a session, a file, or do something…"
          value={text}
          onChange={(event) => {
            setText(event.target.value);
            setAt(0);
          }}
          onKeyDown={handleKey}
          className="h-12 min-w-0 grow bg-transparent outline-none placeholder:text-muted"
        />
      </div>
      <div id={id} role="listbox" aria-label="Commands" className="max-h-[min(24rem,60dvh)] overflow-y-auto p-2">
        {found.map((command, index) => (
          <Option
            key={command.id}
            id={optionId(index)}
            command={command}
            isCurrent={index === current}
            group={found[index - 1]?.group === command.group ? null : command.group}
            onChoose={() => run(command)}
            onPoint={() => setAt(index)}
          />
        ))}
        {found.length === 0 && <p className="px-3 py-8 text-center text-muted">Nothing found.</p>}
      </div>
    </>
  );
}

interface OptionProps {
  id: string;
  command: Command;
  isCurrent: boolean;
  /** Shown above the first command of a group. */
  group: string | null;
  onChoose: () => void;
  onPoint: () => void;
}

function Option({
  id,
  command: { icon: Icon, label, detail, excerpt },
  isCurrent,
  group,
  onChoose,
  onPoint,
}: OptionProps) {
  return (
    <>
      {group && (
        <div role="presentation" className="px-3 pt-2 pb-1 text-xs font-medium text-muted">
          {group}
        </div>
      )}
      {/* biome-ignore lint/a11y/useKeyWithClickEvents: the combobox handles the keys */}
      <div
        id={id}
        role="option"
        aria-selected={isCurrent}
        tabIndex={-1}
        onClick={onChoose}
        onPointerMove={onPoint}
        className="flex min-h-9 cursor-pointer items-center gap-2 rounded-md px-3 py-1 aria-selected:bg-accent-soft"
      >
        <Icon aria-hidden className="size-4 shrink-0 text-muted" />
        <span className="min-w-0 grow">
          <span className="block truncate">{label}</span>
          {excerpt && <span className="block truncate text-xs text-muted">{excerpt}</span>}
        </span>
        {detail && (
          <kbd className="rounded-sm border border-line bg-sunken px-2 font-mono text-xs text-muted">{detail}</kbd>
        )}
      </div>
    </>
  );
}
