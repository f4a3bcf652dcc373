/** A dropdown menu with the usual keyboard support. */
import { Check } from "lucide-react";
import { DropdownMenu } from "radix-ui";
import type { ReactNode } from "react";

const ITEM =
  "flex items-center gap-2 min-h-8 rounded-sm px-3 py-1 outline-none select-none data-[highlighted]:bg-accent-soft data-[disabled]:opacity-60";

export function Menu({ label, trigger, children }: { label: string; trigger: ReactNode; children: ReactNode }) {
  return (
    // Not modal: a modal menu locks scrolling with an inline style, which the content security policy blocks.
    <DropdownMenu.Root modal={false}>
      <DropdownMenu.Trigger
        aria-label={label}
        title={label}
        className="inline-flex min-h-9 min-w-9 items-center justify-center rounded-md text-muted hover:bg-accent-soft hover:text-ink"
      >
        {trigger}
      </DropdownMenu.Trigger>
      <DropdownMenu.Portal>
        <DropdownMenu.Content
          sideOffset={4}
          collisionPadding={8}
          className="z-40 min-w-48 rounded-lg border border-line bg-raised p-1 shadow-card"
        >
          {children}
        </DropdownMenu.Content>
      </DropdownMenu.Portal>
    </DropdownMenu.Root>
  );
}

export function MenuItem({ onSelect, children }: { onSelect: () => void; children: ReactNode }) {
  return (
    <DropdownMenu.Item className={ITEM} onSelect={onSelect}>
      {children}
    </DropdownMenu.Item>
  );
}

export function MenuLabel({ children }: { children: ReactNode }) {
  return <DropdownMenu.Label className="px-3 py-1 text-xs text-muted">{children}</DropdownMenu.Label>;
}

export function MenuLine() {
  return <DropdownMenu.Separator className="my-1 h-px bg-line" />;
}

interface ChoiceProps {
  label: string;
  value: string;
  onChange: (value: string) => void;
  /** Value to label, in order. */
  options: Record<string, string>;
}

export function MenuChoice({ label, value, onChange, options }: ChoiceProps) {
  return (
    <>
      <MenuLabel>{label}</MenuLabel>
      <DropdownMenu.RadioGroup value={value} onValueChange={onChange} aria-label={label}>
        {Object.entries(options).map(([option, text]) => (
          <DropdownMenu.RadioItem key={option} value={option} className={ITEM}>
            <span className="grow">{text}</span>
            <DropdownMenu.ItemIndicator>
              <Check aria-hidden className="size-4 text-accent" />
            </DropdownMenu.ItemIndicator>
          </DropdownMenu.RadioItem>
        ))}
      </DropdownMenu.RadioGroup>
    </>
  );
}
