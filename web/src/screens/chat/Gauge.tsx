/** How much of the model's window the conversation takes up. */
import type { Run, Usage } from "../../events/conversation";

const amounts = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export function Gauge({ usage, run }: { usage: Usage | null; run: Run | null }) {
  if (usage === null) return null;
  const { contextTokens, contextWindow } = usage;
  const share = contextWindow ? Math.min(1, contextTokens / contextWindow) : null;
  const words = contextWindow
    ? `${amounts.format(contextTokens)} of ${amounts.format(contextWindow)} tokens`
    : `${amounts.format(contextTokens)} tokens`;
  const spent = run
    ? `; this run took ${amounts.format(run.inputTokens)} and gave ${amounts.format(run.outputTokens)}`
    : "";
  return (
    <div className="flex items-center gap-1.5 text-xs text-muted" title={`The conversation takes up ${words}${spent}`}>
      {share !== null && (
        <meter
          aria-label="Part of the model's window that is used"
          className="gauge h-1.5 w-16"
          value={share}
          high={0.8}
          optimum={0}
        />
      )}
      <span>{words}</span>
    </div>
  );
}
