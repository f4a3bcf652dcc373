/** Shapes of the size of what is being loaded, so that nothing moves when it arrives. */
import type { ReactNode } from "react";

interface Props {
  what: string;
  rows?: number;
  className?: string;
}

/** Rows of a list on a card. */
export function Skeleton({ what, rows = 3, className = "" }: Props) {
  return (
    <LoadingShape what={what} className={`space-y-px overflow-hidden rounded-xl border border-line ${className}`}>
      {numbers(rows).map((at) => (
        <div key={at} aria-hidden className="flex min-h-14 items-center gap-3 bg-surface px-4">
          <span className="size-4 shrink-0 animate-pulse rounded-sm bg-sunken" />
          <Bar at={at} />
        </div>
      ))}
    </LoadingShape>
  );
}

/** Rows of a tree or of a list in a side column. */
export function SkeletonTree({ what, rows = 12, className = "" }: Props) {
  return (
    <LoadingShape what={what} className={`overflow-hidden py-1 ${className}`}>
      {numbers(rows).map((at) => (
        <div key={at} aria-hidden className={`flex min-h-7 items-center gap-2 pr-4 ${at % 4 === 0 ? "pl-3" : "pl-7"}`}>
          <span className="size-3.5 shrink-0 animate-pulse rounded-sm bg-sunken" />
          <Bar at={at} />
        </div>
      ))}
    </LoadingShape>
  );
}

/** Lines of a text or of a diff. */
export function SkeletonLines({ what, rows = 12, className = "" }: Props) {
  return (
    <LoadingShape what={what} className={`overflow-hidden p-3 ${className}`}>
      {numbers(rows).map((at) => (
        <div key={at} aria-hidden className="flex h-5 items-center">
          <Bar at={at} />
        </div>
      ))}
    </LoadingShape>
  );
}

function LoadingShape({ what, className, children }: { what: string; className: string; children: ReactNode }) {
  return (
    <div role="status" className={className}>
      <span className="sr-only">Loading {what}…</span>
      {children}
    </div>
  );
}

const WIDTHS = ["w-3/5", "w-2/5", "w-1/2", "w-1/3"] as const;

function Bar({ at }: { at: number }) {
  return <span className={`h-3 animate-pulse rounded-sm bg-sunken ${WIDTHS[at % WIDTHS.length]}`} />;
}

function numbers(count: number): number[] {
  return Array.from({ length: count }, (_, at) => at);
}
