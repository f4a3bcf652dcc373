/** What became of each of several decisions. Pure. */
import type { Pause } from "../events/conversation";

/** A decision that was sent. */
export interface Decided {
  id: string;
  /** The call, in one line. */
  call: string;
  workspace: string;
  approved: boolean;
  /** Why the server refused the decision. */
  failure: string | null;
}

export interface DecisionResult extends Decided {
  outcome: "approved" | "rejected" | "asked-again" | "not-decided";
  text: string;
}

const CHANGED = "its effect is no longer the one that you saw, because other changes came first";

/** `waiting` are the calls that wait now: a decided one that was asked about again is among them. */
export function resultsOf(decided: readonly Decided[], waiting: readonly Pause[]): DecisionResult[] {
  return decided.map((one) => {
    const isAskedAgain = waiting.some((pause) => replacedBy(pause) === one.id);
    if (isAskedAgain) return { ...one, outcome: "asked-again", text: `asked again: ${one.failure ?? CHANGED}` };
    if (one.failure !== null) return { ...one, outcome: "not-decided", text: `not decided: ${one.failure}` };
    const outcome = one.approved ? "approved" : "rejected";
    return { ...one, outcome, text: outcome };
  });
}

/** Returns why a waiting call is there although it was decided, or null. */
export function whyAgain(pause: Pause, results: readonly DecisionResult[]): string | null {
  const before = results.find(({ id, failure }) => id === replacedBy(pause) || (id === pause.id && failure !== null));
  return before === undefined ? null : before.text;
}

function replacedBy(pause: Pause): string | null {
  return pause.kind === "approval" ? pause.replaces : null;
}
