import type { ReactNode } from "react";

interface Props {
  title: ReactNode;
  /** Names the part that scrolls, for screen readers. */
  label: string;
  about?: ReactNode;
  /** Links and buttons beside the title. */
  aside?: ReactNode;
  children: ReactNode;
}

/** A screen that scrolls as a whole: its title, what can be done there, and its content, at the same place on each. */
export function Page({ title, label, about, aside, children }: Props) {
  return (
    <div tabIndex={0} role="region" aria-label={label} className="h-full overflow-y-auto -outline-offset-2">
      <div className="mx-auto max-w-5xl space-y-4 p-4 md:p-6">
        <header className="flex flex-wrap items-start gap-x-4 gap-y-2">
          <div className="min-w-0 grow basis-64">
            <h1 className="text-xl font-semibold tracking-tight wrap-anywhere">{title}</h1>
            {about && <p className="mt-1 text-muted">{about}</p>}
          </div>
          {aside && <div className="flex min-h-9 flex-wrap items-center gap-2">{aside}</div>}
        </header>
        {children}
      </div>
    </div>
  );
}
