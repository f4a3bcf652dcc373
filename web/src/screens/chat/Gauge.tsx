/** How much of the model's context window is used, and what the session has cost. */
import { compact, cost } from "../../components/money";
import type { Conversation, Run } from "../../events/conversation";

export function Gauge({ conversation, run }: { conversation: Conversation; run: Run | null }) {
  if (conversation.usage === null) return null;
  const { contextTokens, contextWindow } = conversation.usage;
  const share = contextWindow ? Math.min(1, contextTokens / contextWindow) : null;
  const tokens = contextWindow
    ? `${compact(contextTokens)} of ${compact(contextWindow)} tokens`
    : `${compact(contextTokens)} tokens`;
  const spent = costOf(Object.values(conversation.runs));
  const now = run
    ? `; this run: ${compact(run.inputTokens)} input, ${compact(run.outputTokens)} output, ${costOf([run])}`
    : "";
  return (
    <div
      className="flex items-center gap-2 text-xs text-muted"
      title={`Context: ${tokens}; this session: ${spent}${now}`}
    >
      {share !== null && (
        <meter aria-label="Context used" className="gauge h-1.5 w-16" value={share} high={0.8} optimum={0} />
      )}
      <span>{tokens}</span>
      <span>
        <span className="sr-only">Cost of the session: </span>
        {spent}
      </span>
    </div>
  );
}

function costOf(runs: readonly Run[]): string {
  const known = runs.reduce((sum, run) => sum + run.cost, 0);
  const unpriced = runs.reduce((sum, run) => sum + run.unpricedTurns, 0);
  return cost(known, unpriced);
}
