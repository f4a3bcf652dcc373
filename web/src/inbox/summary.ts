/** A call that waits, in one line. Text of agents is escaped, so that it cannot pose as ours. */
import { isPlanReview } from "../approvals/items";
import { escapedLine } from "../components/shownText";
import type { Pause } from "../events/conversation";

export interface Summary {
  title: string;
  /** The command, the files or the hosts. */
  detail: string;
}

const MOST_PATHS = 3;

export function summaryOf(pause: Pause): Summary {
  if (pause.kind === "question") {
    if (isPlanReview(pause.items)) return { title: "A plan waits for your review", detail: "" };
    return { title: pause.items.map(({ question }) => escapedLine(question)).join(" "), detail: "" };
  }
  const { runs, writes = [], contacts = [] } = pause.effects;
  const title = `${escapedLine(pause.agent ?? "Someone")} wants to use ${escapedLine(pause.tool)}`;
  return { title, detail: runs ? escapedLine(runs) : listed(writes.length > 0 ? writes : contacts) };
}

function listed(names: readonly string[]): string {
  const more = names.length > MOST_PATHS ? ` and ${names.length - MOST_PATHS} more` : "";
  return names.slice(0, MOST_PATHS).map(escapedLine).join(", ") + more;
}
