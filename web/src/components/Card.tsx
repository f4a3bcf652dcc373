import type { ReactNode } from "react";

interface Props {
  title?: ReactNode;
  /** Badges and buttons to the right of the title. */
  aside?: ReactNode;
  /** Label for screen readers. Required without a title. */
  label?: string;
  children: ReactNode;
  className?: string;
}

export function Card({ title, aside, label, children, className = "" }: Props) {
  return (
    <section aria-label={label} className={`rounded-xl border border-line bg-surface ${className}`}>
      {(title || aside) && (
        <header className="flex flex-wrap items-center gap-2 border-b border-line px-4 py-2">
          <h2 className="min-w-0 grow basis-48 font-semibold">{title}</h2>
          {aside}
        </header>
      )}
      <div className="p-4">{children}</div>
    </section>
  );
}
