import { expect, test } from "vitest";
import {
  duration,
  type Message,
  type PausedCall,
  type Run,
  type RunCall,
  turnsOf,
  waitedFor,
  workedFor,
} from "./runSteps";

const at = (second: number) => `2026-01-01T10:00:${String(second).padStart(2, "0")}Z`;

const says = (id: string, second: number, ...calls: string[]): Message =>
  ({
    id,
    role: "assistant",
    content: id,
    created_at: at(second),
    metadata: { tool_calls: calls.map((call_id) => ({ call_id })) },
  }) as unknown as Message;

const call = (id: string, from: number, to: number | null, tool = "write"): RunCall =>
  ({ id, tool, started_at: at(from), ended_at: to === null ? null : at(to) }) as RunCall;

const pause = (callId: string, from: number, to: number | null): PausedCall =>
  ({
    call_id: callId,
    state: to === null ? "pending" : "approved",
    created_at: at(from),
    decided_at: to === null ? null : at(to),
  }) as unknown as PausedCall;

const child = (id: string, second: number): Run => ({ id, created_at: at(second) }) as Run;

test("each turn has its calls, and a call what was decided and the runs that it started", () => {
  const turns = turnsOf({
    messages: [says("first", 1, "a"), { role: "user" } as Message, says("second", 10, "c", "b")],
    calls: [call("c", 12, 20, "run_agent"), call("b", 11, 12), call("a", 2, 9), call("z", 30, 31)],
    pauses: [pause("a", 3, 8)],
    children: [child("inside", 13), child("of another call", 25)],
  });

  expect(turns.map(({ number, steps }) => [number, steps.map((step) => step.call.id)])).toEqual([
    [1, ["a"]],
    [2, ["c", "b"]],
    [0, ["z"]],
  ]);
  expect(turns[0]?.steps[0]?.pauses).toHaveLength(1);
  expect(turns[1]?.steps[0]?.children.map(({ id }) => id)).toEqual(["inside"]);
});

test("time that a person was waited for is no work", () => {
  const step = { call: call("a", 0, 10), pauses: [pause("a", 1, 7)], children: [] };

  expect(workedFor(step)).toBe(4_000);
  expect(workedFor({ ...step, call: call("a", 0, null) })).toBeNull();
  expect(waitedFor([pause("a", 1, 7), pause("b", 10, null)], Date.parse(at(15)))).toBe(11_000);
});

test("durations are short", () => {
  expect([0, 999, 3_400, 125_000, 12_000_000].map(duration)).toEqual([
    "0 ms",
    "999 ms",
    "3.4 s",
    "2 min 5 s",
    "3 h 20 min",
  ]);
});
