/** Folds consecutive finished calls into groups that say what was done. Pure. */
import type { Call, Conversation, Row } from "../../../events/conversation";
import { counted } from "./callView";

export interface CallGroup {
  kind: "group";
  id: string;
  calls: readonly Call[];
}

export type Item = Row | CallGroup;

/** Returns the rows as they are listed: a group stands before its calls, which follow only while it is open. */
export function groupedRows(
  { order, rows }: Pick<Conversation, "order" | "rows">,
  isOpen: (group: CallGroup) => boolean,
): Item[] {
  const items: Item[] = [];
  let calls: Call[] = [];
  const flush = () => {
    if (calls.length < 2) items.push(...calls);
    else {
      const group: CallGroup = { kind: "group", id: `group-${calls[0]?.id}`, calls };
      items.push(group, ...(isOpen(group) ? calls : []));
    }
    calls = [];
  };
  for (const id of order) {
    const row = rows[id];
    if (row?.kind === "call" && isFoldable(row)) calls.push(row);
    else {
      flush();
      if (row) items.push(row);
    }
  }
  flush();
  return items;
}

/** A call that waits, runs, asked a person or started a child run stands by itself. */
function isFoldable(call: Call): boolean {
  return call.result !== null && call.child === null && call.pause?.kind !== "question";
}

const DEEDS: readonly [RegExp, string, string, string][] = [
  [/^(read|cat|file_read|plan_read|file_version)/, "read", "file", "files"],
  [/^(write|edit|file_write|file_edit|plan_write|plan_edit|touch)/, "changed", "file", "files"],
  [/^(rm|mv|mkdir|delete)/, "moved or deleted", "path", "paths"],
  [/^(bash|job_|process)/, "ran", "command", "commands"],
  [/^(grep|glob|find|search)/, "searched", "time", "times"],
  [/^(ls|list_|file_info|plan_list)/, "listed", "folder", "folders"],
  [/^web_search/, "searched the web", "time", "times"],
  [/^(web|http|fetch)/, "opened", "page", "pages"],
];

/** Says what the calls did, such as `Read 5 files, ran 2 commands`. */
export function summaryOfGroup(calls: readonly Call[]): string {
  const counts = new Map<string, { one: string; many: string; count: number }>();
  for (const { name } of calls) {
    const [, verb, one, many] = DEEDS.find(([names]) => names.test(name)) ?? [
      null,
      "made",
      "other call",
      "other calls",
    ];
    const before = counts.get(verb)?.count ?? 0;
    counts.set(verb, { one, many, count: before + 1 });
  }
  const parts = [...counts].map(([verb, { one, many, count }]) => `${verb} ${counted(count, one, many)}`);
  const text = parts.join(", ");
  return text.charAt(0).toUpperCase() + text.slice(1);
}
