import { expect, test } from "vitest";
import type { Pause } from "../events/conversation";
import { type Decided, resultsOf, whyAgain } from "./results";

const decided = (id: string, failure: string | null = null, approved = true): Decided => ({
  id,
  call: `call ${id}`,
  workspace: "w",
  approved,
  failure,
});
const waiting = (id: string, replaces: string | null = null) =>
  ({ id, kind: "approval", replaces }) as unknown as Pause;

test("Each decision has a result, and what is asked again says why.", () => {
  const all = [
    decided("a"),
    decided("b", null, false),
    decided("c"),
    decided("d", "It changed."),
    decided("e", "Busy."),
  ];
  const pauses = [waiting("c2", "c"), waiting("d2", "d"), waiting("e"), waiting("other")];
  const results = resultsOf(all, pauses);
  expect(results.map(({ outcome }) => outcome)).toEqual([
    "approved",
    "rejected",
    "asked-again",
    "asked-again",
    "not-decided",
  ]);
  expect(pauses.map((pause) => whyAgain(pause, results))).toEqual([
    "asked again: its effect is no longer the one that you saw, because other changes came first",
    "asked again: It changed.",
    "not decided: Busy.",
    null,
  ]);
});
