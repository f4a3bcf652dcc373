import { expect, test } from "vitest";
import { groupsOf, type HistoryCall, type Run, summaryOf, undoableCalls, workOf } from "./timeline";

const at = (minute: number) => `2026-01-01T10:${String(minute).padStart(2, "0")}:00Z`;

const run = (id: string, minute: number): Run =>
  ({ id, created_at: at(minute), prompt_preview: id, state: "ended", end_reason: "done" }) as Run;

const call = (id: string, minute: number, more: Partial<HistoryCall> = {}): HistoryCall => ({
  id,
  run_id: null,
  user_id: "ada",
  agent_id: null,
  tool: "write",
  arguments: {},
  state: "done",
  error: null,
  files: 1,
  started_at: at(minute),
  ended_at: null,
  decision: null,
  undone_by: null,
  ...more,
});

test("runs are newest first, and their calls oldest first", () => {
  const groups = groupsOf(
    [run("second", 5), run("first", 1)],
    [call("d", 7, { run_id: "second" }), call("c", 6, { run_id: "second" }), call("a", 2, { run_id: "first" })],
  );

  expect(groups.map((group) => [group.run?.id, group.calls.map((one) => one.id)])).toEqual([
    ["second", ["c", "d"]],
    ["first", ["a"]],
  ]);
});

test("calls between runs form one group between them", () => {
  const groups = groupsOf([run("second", 5), run("first", 1)], [call("z", 9), call("y", 4), call("x", 3)]);

  expect(groups.map((group) => [group.run?.id ?? null, group.calls.map((one) => one.id)])).toEqual([
    [null, ["z"]],
    ["second", []],
    [null, ["x", "y"]],
    ["first", []],
  ]);
});

test("a call of a run that is not loaded has its own group", () => {
  expect(groupsOf([], [call("a", 1, { run_id: "older" })]).map((group) => group.run)).toEqual([null]);
});

test("a call has a summary", () => {
  expect(summaryOf(call("a", 1, { arguments: { path: "/a.md", content: { bytes: 1 } } }))).toBe("/a.md");
  expect(summaryOf(call("a", 1, { tool: "undo", arguments: { calls: ["b"] } }))).toBe("one call");
  expect(summaryOf(call("a", 1, { tool: "undo", arguments: { run_id: "r" } }))).toBe("one turn");
  expect(summaryOf(call("a", 1))).toBe("");
});

test("how long a call worked is without the time that a person was waited for", () => {
  const decision = (state: string) => ({ state, decided_at: "2026-01-01T10:05:00Z" }) as HistoryCall["decision"];
  const ended = { ended_at: "2026-01-01T10:05:02Z" };

  expect(workOf(call("a", 5, ended))).toBe(2_000);
  expect(workOf(call("a", 1, { ...ended, decision: decision("approved") }))).toBe(2_000);
  expect(workOf(call("a", 1, { ...ended, decision: decision("rejected") }))).toBeNull();
  expect(workOf(call("a", 1, { ...ended, tool: "ask_user" }))).toBeNull();
  expect(workOf(call("a", 1))).toBeNull();
});

test("undoable calls changed files, are not undone and are not undos", () => {
  const calls = [
    call("a", 1),
    call("b", 2, { files: 0 }),
    call("c", 3, { undone_by: "u" }),
    call("u", 4, { tool: "undo" }),
  ];

  expect(undoableCalls(calls).map((one) => one.id)).toEqual(["a"]);
});
