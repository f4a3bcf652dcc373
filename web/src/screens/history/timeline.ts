/** Groups the history of a session: each run with its calls, and the calls between runs. Pure. */
import type { Schema } from "../../api/client";

export type Run = Schema["RunOut"];
export type HistoryCall = Schema["CallSummaryOut"];

export interface Group {
  key: string;
  /** Null for calls outside runs. */
  run: Run | null;
  /** Oldest first. */
  calls: HistoryCall[];
}

/** Returns the groups, newest first. Both lists are newest first, as the server returns them. */
export function groupsOf(runs: readonly Run[], calls: readonly HistoryCall[]): Group[] {
  const byRun = new Map<string, HistoryCall[]>(runs.map((run) => [run.id, []]));
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

/** Merges neighbouring groups without a run. */
function joined(groups: readonly Group[]): Group[] {
  const found: Group[] = [];
  for (const group of groups) {
    const last = found.at(-1);
    if (last !== undefined && last.run === null && group.run === null) last.calls.unshift(...group.calls);
    else found.push(group);
  }
  return found;
}

const SUMMARY_FIELDS = ["command", "path", "plan_file_path", "source", "pattern", "query", "name", "title"] as const;

/** Returns a short summary of a call. */
export function summaryOf(call: Pick<HistoryCall, "tool" | "arguments">): string {
  for (const name of SUMMARY_FIELDS) {
    const value = call.arguments[name];
    if (typeof value === "string" && value !== "") return value;
  }
  if (call.tool === "undo") return undoSummary(call.arguments);
  return "";
}

function undoSummary(given: Record<string, unknown>): string {
  if (given.session_id) return "this session";
  if (given.run_id) return "one turn";
  const count = Array.isArray(given.calls) ? given.calls.length : 0;
  return count === 1 ? "one call" : `${count} calls`;
}

/** Returns how long a call worked, in milliseconds, without the time that a person was waited for. Null if it only waited. */
export function workOf({ tool, started_at, ended_at, decision }: HistoryCall): number | null {
  if (ended_at === null || tool === "ask_user") return null;
  if (decision !== null && decision.state !== "approved") return null;
  const began = Math.max(Date.parse(started_at), Date.parse(decision?.decided_at ?? started_at));
  return Math.max(0, Date.parse(ended_at) - began);
}

/** Returns the calls that changed files and are not undone. */
export function undoableCalls(calls: readonly HistoryCall[]): HistoryCall[] {
  return calls.filter((call) => call.files > 0 && call.undone_by === null && call.tool !== "undo");
}
