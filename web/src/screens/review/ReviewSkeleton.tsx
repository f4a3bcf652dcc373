/** The review page before its files are known. */
import { SkeletonLines, SkeletonTree } from "../../components/Skeleton";

export function ReviewSkeleton() {
  return (
    <div className="flex h-full min-h-0 flex-col">
      <div aria-hidden className="flex min-h-13 shrink-0 items-center gap-3 border-b border-line bg-surface px-3 py-2">
        <span className="h-4 w-1/3 animate-pulse rounded-sm bg-sunken" />
      </div>
      <div className="flex min-h-0 grow">
        <div className="hidden flex-col border-r border-line bg-surface pt-12 lg:flex lg:w-64 xl:w-72">
          <SkeletonTree what="files" />
        </div>
        <div className="min-w-0 grow space-y-3 overflow-hidden px-2 py-3 sm:px-3">
          {["first", "second"].map((name) => (
            <div key={name} className="overflow-hidden rounded-lg border border-line bg-surface">
              <div aria-hidden className="min-h-11 border-b border-line bg-sunken" />
              <SkeletonLines what="changes" />
            </div>
          ))}
        </div>
      </div>
    </div>
  );
}
