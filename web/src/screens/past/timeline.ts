/** A session's past in groups: each run with its calls, and what was called between runs. Pure. */
import type { Schema } from "../../api/client";

export type Run = Schema["RunAnswer"];
export type PastCall = Schema["PastCallAnswer"];

export interface Group {
  key: string;
  /** None for calls that were made outside runs. */
  run: Run | null;
  /** The oldest first. */
  calls: PastCall[];
}

/** Groups, the newest first. Both lists come with the newest first, as the server gives them. */
export function groupsOf(runs: readonly Run[], calls: readonly PastCall[]): Group[] {
  const byRun = new Map<string, PastCall[]>(runs.map((run) => [run.id, []]));
  const moments: { time: string; group: Group }[] = [];
  for (const run of runs) {
    moments.push({ time: run.created_at, group: { key: run.id, run, calls: byRun.get(run.id) ?? [] } });
  }
  for (const call of calls) {
    const ofRun = call.run_id === null ? undefined : byRun.get(call.run_id);
    if (ofRun !== undefined) ofRun.unshift(call);
    else moments.push({ time: call.started_at, group: { key: call.id, run: null, calls: [call] } });
  }
  moments.sort((one, other) => Date.parse(other.time) - Date.parse(one.time));
  return joined(moments.map((moment) => moment.group));
}

/** Neighbours that belong to no run are one group. */
function joined(groups: readonly Group[]): Group[] {
  const found: Group[] = [];
  for (const group of groups) {
    const last = found.at(-1);
    if (last !== undefined && last.run === null && group.run === null) last.calls.unshift(...group.calls);
    else found.push(group);
  }
  return found;
}

const NAMING = ["command", "path", "plan_file_path", "source", "pattern", "query", "name"] as const;

/** What a call is about, in a few words. */
export function aboutOf(call: Pick<PastCall, "tool" | "arguments">): string {
  for (const name of NAMING) {
    const said = call.arguments[name];
    if (typeof said === "string" && said !== "") return said;
  }
  if (call.tool === "undo") return aboutUndo(call.arguments);
  return "";
}

function aboutUndo(given: Record<string, unknown>): string {
  if (given.session_id) return "the whole session";
  if (given.run_id) return "a whole turn";
  const count = Array.isArray(given.calls) ? given.calls.length : 0;
  return count === 1 ? "one call" : `${count} calls`;
}

/** How many of these calls changed files and stand. */
export function standing(calls: readonly PastCall[]): PastCall[] {
  return calls.filter((call) => call.files > 0 && call.undone_by === null && call.tool !== "undo");
}
