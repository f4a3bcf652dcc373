/** Shows the current plan, so that a person reads what they accept. */

import { useQuery } from "@tanstack/react-query";
import { callTool } from "../api/tools";
import { ErrorNote } from "../components/ErrorNote";
import { Loading } from "../components/Loading";
import { Markdown } from "../components/Markdown";
import { escapedLine } from "../components/shownText";

export function PlanReview({ workspaceId, path }: { workspaceId: string; path: string }) {
  const plan = useQuery({
    queryKey: [workspaceId, "plan", path],
    queryFn: () => callTool(workspaceId, "plan_read", { path }),
    staleTime: 0,
  });
  if (plan.isPending) return <Loading what="the plan" />;
  if (plan.error) return <ErrorNote error={plan.error} />;
  const title = plan.data.metadata?.title;
  return (
    <article className="rounded-md border border-line bg-ground">
      <header className="border-b border-line px-4 py-2">
        {typeof title === "string" && <h4 className="font-semibold">{title}</h4>}
        <code className="text-xs text-muted">{escapedLine(path)}</code>
      </header>
      <div tabIndex={0} role="region" aria-label="Plan" className="max-h-[50vh] overflow-y-auto px-4 py-3">
        <Markdown text={String(plan.data.content)} />
      </div>
    </article>
  );
}
