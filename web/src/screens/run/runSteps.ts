/** The timeline of a run: its turns in order, each with its calls, what people decided about them, and child runs. Pure. */
import type { Schema } from "../../api/client";

export type Run = Schema["RunOut"];
export type RunCall = Schema["CallSummaryOut"];
export type Message = Schema["MessageOut"];
export type PausedCall = Schema["PausedCallPage"]["items"][number];

export interface Step {
  call: RunCall;
  /** Oldest first: a call is asked about again if files changed meanwhile. */
  pauses: PausedCall[];
  /** The runs that the call started. */
  children: Run[];
}

export interface Turn {
  /** Counted from 1; 0 has the calls that belong to no message. */
  number: number;
  /** The message of the conversation. */
  id: string | null;
  at: string;
  text: string;
  steps: Step[];
}

interface Found {
  /** Oldest first. */
  messages: readonly Message[];
  calls: readonly RunCall[];
  pauses: readonly PausedCall[];
  children: readonly Run[];
}

export function turnsOf({ messages, calls, pauses, children }: Found): Turn[] {
  const byStart = calls.toSorted((one, other) => one.started_at.localeCompare(other.started_at));
  const steps = new Map(
    byStart.map((call): [string, Step] => [
      call.id,
      { call, pauses: pauses.filter((pause) => pause.call_id === call.id), children: childrenOf(call, children) },
    ]),
  );
  const turns = messages
    .filter(({ role }) => role === "assistant")
    .map((message, at): Turn => {
      const ids = message.metadata?.tool_calls?.map(({ call_id }) => call_id) ?? [];
      const own = ids.flatMap((id) => steps.get(id) ?? []);
      for (const id of ids) steps.delete(id);
      return { number: at + 1, id: message.id, at: message.created_at ?? "", text: message.content, steps: own };
    });
  const loose = [...steps.values()];
  const first = loose[0];
  if (first !== undefined) turns.push({ number: 0, id: null, at: first.call.started_at, text: "", steps: loose });
  return turns;
}

/** A child run is created while its call runs. */
function childrenOf(call: RunCall, children: readonly Run[]): Run[] {
  if (call.tool !== "run_agent") return [];
  return children.filter(
    ({ created_at }) => created_at >= call.started_at && (call.ended_at === null || created_at <= call.ended_at),
  );
}

/** The milliseconds that people were waited for: from each question to its decision, or until now. */
export function waitedFor(pauses: readonly PausedCall[], now: number): number {
  return pauses.reduce((sum, pause) => {
    const end = pause.state === "pending" ? now : Date.parse(pause.decided_at ?? pause.created_at);
    return sum + Math.max(0, end - Date.parse(pause.created_at));
  }, 0);
}

/** How long a call worked, without the time that a person was waited for. Null while it is open. */
export function workedFor({ call, pauses }: Step): number | null {
  if (call.ended_at === null) return null;
  const total = Date.parse(call.ended_at) - Date.parse(call.started_at);
  return Math.max(0, total - waitedFor(pauses, Date.parse(call.ended_at)));
}

/** A duration such as `12 ms`, `3.4 s`, `2 min 5 s` or `3 h 20 min`. */
export function duration(ms: number): string {
  if (ms < 1_000) return `${Math.max(0, Math.round(ms))} ms`;
  if (ms < 60_000) return `${(ms / 1_000).toFixed(1)} s`;
  const seconds = Math.round(ms / 1_000);
  if (seconds < 3_600) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
  return `${Math.floor(seconds / 3_600)} h ${Math.floor((seconds % 3_600) / 60)} min`;
}
