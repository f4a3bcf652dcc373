import { Badge, type Tone } from "../../components/Badge";
import type { Run } from "./runSteps";

const ENDINGS: Record<NonNullable<Run["end_reason"]>, Tone> = {
  done: "good",
  "turn-limit": "warn",
  budget: "warn",
  deadline: "warn",
  cancelled: "plain",
  violation: "bad",
  failed: "bad",
};

/** How a run ended, or what it does now. */
export function RunBadge({ run }: { run: Run }) {
  if (run.end_reason === null) return <Badge tone={run.state === "waiting" ? "warn" : "accent"}>{run.state}</Badge>;
  return (
    <Badge tone={ENDINGS[run.end_reason]} {...(run.error ? { title: run.error.message } : {})}>
      {run.end_reason}
    </Badge>
  );
}
