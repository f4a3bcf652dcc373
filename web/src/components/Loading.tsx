import { LoaderCircle } from "lucide-react";

export function Loading({ what }: { what: string }) {
  return (
    <div role="status" className="flex items-center justify-center gap-2 p-8 text-muted">
      <LoaderCircle aria-hidden className="size-4 animate-spin" />
      Loading {what}…
    </div>
  );
}
