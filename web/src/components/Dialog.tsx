import { X } from "lucide-react";
import { type ReactNode, useEffect, useId, useRef } from "react";
import { IconButton } from "./Button";

interface Props {
  title: string;
  isOpen: boolean;
  onClose: () => void;
  children: ReactNode;
  /** Buttons in the footer. */
  foot?: ReactNode;
  wide?: boolean;
}

/** A native modal dialog. It traps the focus and restores it on close. */
export function Dialog({ title, isOpen, onClose, children, foot, wide }: Props) {
  const element = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const dialog = element.current;
    if (isOpen && dialog && !dialog.open) dialog.showModal();
    if (!isOpen) dialog?.close();
  }, [isOpen]);
  return (
    <dialog
      ref={element}
      aria-labelledby={id}
      onClose={onClose}
      className={`m-auto max-h-[90dvh] w-[calc(100%-1.5rem)] flex-col overflow-hidden rounded-xl border border-line bg-surface p-0 text-ink shadow-card backdrop:bg-[rgb(0_0_0/0.45)] open:flex ${wide ? "max-w-5xl" : "max-w-lg"}`}
    >
      <header className="flex items-center gap-2 border-b border-line py-2 pr-2 pl-4">
        <h2 id={id} className="min-w-0 grow truncate font-semibold">
          {title}
        </h2>
        <IconButton label="Close" onClick={onClose}>
          <X aria-hidden className="size-4" />
        </IconButton>
      </header>
      <div className="min-h-0 grow overflow-y-auto p-4" tabIndex={0}>
        {isOpen && children}
      </div>
      {foot && <footer className="flex flex-wrap justify-end gap-2 border-t border-line px-4 py-3">{foot}</footer>}
    </dialog>
  );
}
