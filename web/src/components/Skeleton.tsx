/** Rows of the size of what is being loaded, so that nothing moves when it arrives. */
export function Skeleton({ what, rows = 3, className = "" }: { what: string; rows?: number; className?: string }) {
  return (
    <div role="status" className={`space-y-px overflow-hidden rounded-xl border border-line ${className}`}>
      <span className="sr-only">Loading {what}…</span>
      {Array.from({ length: rows }, (_, at) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: the rows are all alike
        <div key={at} aria-hidden className="flex min-h-14 items-center gap-3 bg-surface px-4">
          <span className="size-4 shrink-0 animate-pulse rounded bg-sunken" />
          <span className={`h-3 animate-pulse rounded bg-sunken ${at % 2 === 0 ? "w-3/5" : "w-2/5"}`} />
        </div>
      ))}
    </div>
  );
}
