import { expect, test } from "vitest";
import type { Call } from "../../events/conversation";
import { staysShown } from "./childCalls";

const ME = "me";

function call(state: string | null, decidedById: string | null = null): Call {
  const pause = state === null ? null : { kind: "approval", state, decidedById };
  return { id: "c", pause, child: null, result: state === "pending" ? null : {} } as unknown as Call;
}

const screen = (asked: boolean, isOver = false) => ({ isOver, asked: new Set(asked ? ["c"] : []), me: ME });

test("Who was asked is told that another was faster, also when the child run is over.", () => {
  expect(staysShown(call("pending"), screen(false))).toBe(true);
  expect(staysShown(call("approved", "other"), screen(true))).toBe(true);
  expect(staysShown(call("approved", "other"), screen(true, true))).toBe(true);
});

test("What the person decided, and what they were never asked, goes.", () => {
  expect(staysShown(call("approved", ME), screen(true))).toBe(false);
  expect(staysShown(call("approved", "other"), screen(false))).toBe(false);
  expect(staysShown(call(null), screen(true, true))).toBe(false);
});
