/** How much of the model's context window is used. */
import type { Run, Usage } from "../../events/conversation";

const amounts = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

const dollars = new Intl.NumberFormat("en", { style: "currency", currency: "USD", maximumFractionDigits: 4 });

export function Gauge({ usage, run }: { usage: Usage | null; run: Run | null }) {
  if (usage === null) return null;
  const { contextTokens, contextWindow } = usage;
  const share = contextWindow ? Math.min(1, contextTokens / contextWindow) : null;
  const tokens = contextWindow
    ? `${amounts.format(contextTokens)} of ${amounts.format(contextWindow)} tokens`
    : `${amounts.format(contextTokens)} tokens`;
  const cost = run?.cost ? dollars.format(Number(run.cost)) : "unknown cost";
  const spent = run
    ? `; this run: ${amounts.format(run.inputTokens)} input, ${amounts.format(run.outputTokens)} output, ${cost}`
    : "";
  return (
    <div className="flex items-center gap-1.5 text-xs text-muted" title={`Context: ${tokens}${spent}`}>
      {share !== null && (
        <meter aria-label="Context used" className="gauge h-1.5 w-16" value={share} high={0.8} optimum={0} />
      )}
      <span>{tokens}</span>
      {run?.cost && <span>{cost}</span>}
    </div>
  );
}
