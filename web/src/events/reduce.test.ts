import { describe, expect, test } from "vitest";
import { type Call, type Conversation, currentRun, EMPTY, type Message, waitingCalls } from "./conversation";
import { reduce } from "./reduce";
import type { Payload, Told } from "./wire";

const NOW = 1_000_000;

/** Events in order, numbered from where the conversation is. */
function told(before: Conversation, ...said: [string, Payload][]): Conversation {
  const numbered = said.map(
    ([type, payload], at): Told => ({ type: `chat:${type}`, payload, seq: before.seq + at + 1 }),
  );
  return reduce(before, numbered, NOW);
}

function delta(before: Conversation, type: string, payload: Payload): Conversation {
  return reduce(before, [{ type: `chat:${type}`, payload }], NOW);
}

const START: [string, Payload] = ["stream-start", { messageId: "m1", runId: "r1", model: "gpt", attempt: 1 }];
const END: [string, Payload] = [
  "stream-end",
  {
    messageId: "m1",
    runId: "r1",
    content: "I look.",
    thinking: "Hm.",
    toolCalls: [
      { toolId: "t1", toolName: "read" },
      { toolId: "t2", toolName: "write" },
    ],
    finishReason: "tool_calls",
    usage: { inputTokens: 1, outputTokens: 2, contextTokens: 18, contextWindow: 100 },
  },
];
const CONFIRM: Payload = {
  toolId: "t2",
  toolName: "write",
  approvalId: "a1",
  input: { path: "/a" },
  agent: "coder",
  argumentsSha256: "00",
  changes: [],
  effects: {},
  rule: "trust.guided.dangerous",
  reason: "Dangerous.",
  isolation: null,
  offeredRule: { tool: "write", paths: null, commands: null },
  replaces: null,
  expiresAt: "2026-11-22T00:00:00Z",
};

function message(conversation: Conversation, id: string): Message {
  const row = conversation.rows[id];
  if (row?.kind !== "message") throw new Error(`No message ${id}`);
  return row;
}

function call(conversation: Conversation, id: string): Call {
  const row = conversation.rows[id];
  if (row?.kind !== "call") throw new Error(`No call ${id}`);
  return row;
}

describe("messages", () => {
  test("are shown in the order in which they were said, each before its calls", () => {
    const said = told(EMPTY, ["message", { messageId: "u1", role: "user", runId: "r1", content: "Hello" }], START, END);
    expect(said.order).toEqual(["u1", "m1", "t1", "t2"]);
    expect(message(said, "m1")).toMatchObject({ text: "I look.", thinking: "Hm.", isStreaming: false });
    expect(said.usage).toEqual({ contextTokens: 18, contextWindow: 100 });
  });

  test("grow by pieces, whichever come twice", () => {
    let said = told(EMPTY, START);
    for (const [content, offset] of [
      ["I l", 0],
      ["I look", 0],
      ["ok.", 4],
    ] as const) {
      said = delta(said, "text-delta", { messageId: "m1", content, offset, attempt: 1 });
    }
    expect(message(said, "m1").text).toBe("I look.");
  });

  test("count characters as the server does", () => {
    let said = told(EMPTY, START);
    said = delta(said, "text-delta", { messageId: "m1", content: "👍a", offset: 0, attempt: 1 });
    said = delta(said, "text-delta", { messageId: "m1", content: "ab", offset: 1, attempt: 1 });
    expect(message(said, "m1").text).toBe("👍ab");
  });

  test("are begun again by a later attempt", () => {
    let said = told(EMPTY, START);
    said = delta(said, "text-delta", { messageId: "m1", content: "Wrong", offset: 0, attempt: 1 });
    said = delta(said, "text-delta", { messageId: "m1", content: "Ri", offset: 0, attempt: 2 });
    said = delta(said, "text-delta", { messageId: "m1", content: "late", offset: 5, attempt: 1 });
    expect(message(said, "m1").text).toBe("Ri");
  });

  test("that a dead process left unfinished go when the next one asks anew", () => {
    const said = told(EMPTY, START, ["stream-start", { messageId: "m2", runId: "r1", model: "gpt", attempt: 2 }]);
    expect(said.order).toEqual(["m2"]);
  });

  test("without words leave only their calls", () => {
    const said = told(EMPTY, START, ["stream-end", { ...END[1], content: "", thinking: null }]);
    expect(said.order).toEqual(["t1", "t2"]);
  });

  test("that were told already change nothing", () => {
    const said = told(EMPTY, START, END);
    expect(reduce(said, [{ type: "chat:stream-start", payload: START[1], seq: 1 }], NOW)).toBe(said);
  });
});

describe("calls", () => {
  test("show their output while they run, and their result after", () => {
    let said = told(EMPTY, ["tool-start", { toolId: "t1", toolName: "bash", input: { command: "ls" } }]);
    said = delta(said, "tool-delta", { toolId: "t1", chunk: "a\n", offset: 0, attempt: 0 });
    said = delta(said, "tool-delta", { toolId: "t1", chunk: "b\n", offset: 2, attempt: 0 });
    expect(call(said, "t1")).toMatchObject({ status: "running", output: "a\nb\n" });
    said = told(said, [
      "tool-result",
      { toolId: "t1", toolName: "bash", status: "success", result: "a\nb", metadata: {}, durationMs: 12 },
    ]);
    expect(call(said, "t1")).toMatchObject({ status: "success", output: "", result: "a\nb", durationMs: 12 });
  });

  test("wait for a person, and are decided once", () => {
    let said = told(EMPTY, START, END, ["tool-confirm", CONFIRM]);
    expect(waitingCalls(said).map((one) => one.id)).toEqual(["t2"]);
    said = told(said, [
      "tool-decided",
      {
        toolId: "t2",
        approvalId: "a1",
        state: "denied",
        approved: false,
        reason: "No.",
        decidedBy: "ada",
        scope: null,
      },
    ]);
    expect(call(said, "t2")).toMatchObject({ status: "denied", approval: { state: "denied", denial: "No." } });
  });

  test("that are told again to who joins stand where they happened", () => {
    let said = delta(EMPTY, "tool-confirm", { ...CONFIRM, again: true });
    said = told(said, START, END, ["tool-confirm", CONFIRM]);
    expect(said.order).toEqual(["m1", "t1", "t2"]);
  });

  test("ask again under a new approval when the first became stale", () => {
    const said = told(
      EMPTY,
      ["tool-confirm", CONFIRM],
      ["tool-confirm", { ...CONFIRM, approvalId: "a2", replaces: "a1" }],
    );
    expect(call(said, "t2").approval).toMatchObject({ id: "a2", replaces: "a1", state: "open" });
  });

  test("put questions, which are answered", () => {
    const items = [{ name: "fw", question: "Which?", schema: { type: "string", enum: ["A", "B"] } }];
    let said = told(EMPTY, ["question", { questionId: "q1", toolId: "t1", questions: items, expiresAt: "" }]);
    expect(waitingCalls(said)).toHaveLength(1);
    said = told(said, [
      "answer",
      { questionId: "q1", toolId: "t1", state: "answered", answers: { fw: "A" }, answeredBy: "ada" },
    ]);
    expect(call(said, "t1").question).toMatchObject({ state: "answered", answers: { fw: "A" } });
    expect(waitingCalls(said)).toEqual([]);
  });

  test("that write a plan name the one that is to be reviewed", () => {
    const planned = told(EMPTY, [
      "tool-result",
      { toolId: "t1", toolName: "plan_write", status: "success", result: '{"path":"/plans/a.plan"}', metadata: {} },
    ]);
    expect(planned.plan).toBe("/plans/a.plan");
  });
});

describe("runs", () => {
  const state = (runId: string, more: Payload): [string, Payload] => [
    "run-state",
    { runId, error: null, ending: null, turns: 1, inputTokens: 1, outputTokens: 1, ...more },
  ];

  test("are current until they end; those behind wait", () => {
    let said = told(EMPTY, state("r1", { state: "running" }), state("r2", { state: "queued" }));
    expect(currentRun(said)?.id).toBe("r1");
    said = told(said, state("r1", { state: "ended", ending: "done" }));
    expect(currentRun(said)).toBeNull();
    expect(said.order).toEqual([]);
  });

  test("say why they ended if not by being done", () => {
    const said = told(EMPTY, state("r1", { state: "ended", ending: "failed", error: { message: "No key." } }));
    expect(said.rows["end-r1"]).toMatchObject({ kind: "note", tone: "bad", text: "No key." });
  });
});

test("a conversation is loaded when its newest event was told", () => {
  let said = reduce(EMPTY, [{ type: "chat:resumed", payload: { newest: 2 } }], NOW);
  expect(said.isLoaded).toBe(false);
  said = told(said, START, END);
  expect(said.isLoaded).toBe(true);
  expect(reduce(EMPTY, [{ type: "chat:resumed", payload: { newest: 0 } }], NOW).isLoaded).toBe(true);
});
