import { describe, expect, test } from "vitest";
import { type Call, type Conversation, currentRun, EMPTY, type Message, waitingCalls } from "./conversation";
import type { Payload, ServerMessage } from "./messages";
import { reduce } from "./reduce";

const NOW = 1_000_000;

/** Events in order, numbered from where the conversation is. */
function withEvents(before: Conversation, ...events: [string, Payload][]): Conversation {
  const numbered = events.map(
    ([type, payload], at): ServerMessage => ({ type: `chat:${type}`, payload, seq: before.seq + at + 1 }),
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
  pauseId: "a1",
  input: { path: "/a" },
  agent: "coder",
  argumentsSha256: "00",
  changes: [],
  effects: {},
  rule: "trust.guided.dangerous",
  reason: "Dangerous.",
  isolation: null,
  suggestedRule: { tools: ["write"], paths: null, commands: null },
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
  test("the messages of a conversation that began elsewhere are a person's and the agent's", () => {
    const conversation = withEvents(
      EMPTY,
      [
        "message",
        { messageId: "a", runId: null, role: "user", content: "What is there?", authorId: "u", author: "Ada" },
      ],
      ["message", { messageId: "b", runId: null, role: "assistant", content: "A file." }],
    );
    expect(conversation.order.map((id) => message(conversation, id).role)).toEqual(["user", "assistant"]);
    expect(message(conversation, "b").text).toBe("A file.");
  });

  test("are in order, each before its calls", () => {
    const after = withEvents(
      EMPTY,
      ["message", { messageId: "u1", role: "user", runId: "r1", content: "Hello" }],
      START,
      END,
    );
    expect(after.order).toEqual(["u1", "m1", "t1", "t2"]);
    expect(message(after, "m1")).toMatchObject({ text: "I look.", thinking: "Hm.", isStreaming: false });
    expect(after.usage).toEqual({ contextTokens: 18, contextWindow: 100 });
  });

  test("grow by deltas and ignore repeated ones", () => {
    let after = withEvents(EMPTY, START);
    for (const [content, offset] of [
      ["I l", 0],
      ["I look", 0],
      ["ok.", 4],
    ] as const) {
      after = delta(after, "text-delta", { messageId: "m1", content, offset, attempt: 1 });
    }
    expect(message(after, "m1").text).toBe("I look.");
  });

  test("count characters as the server does", () => {
    let after = withEvents(EMPTY, START);
    after = delta(after, "text-delta", { messageId: "m1", content: "👍a", offset: 0, attempt: 1 });
    after = delta(after, "text-delta", { messageId: "m1", content: "ab", offset: 1, attempt: 1 });
    expect(message(after, "m1").text).toBe("👍ab");
  });

  test("start again with a later attempt", () => {
    let after = withEvents(EMPTY, START);
    after = delta(after, "text-delta", { messageId: "m1", content: "Wrong", offset: 0, attempt: 1 });
    after = delta(after, "text-delta", { messageId: "m1", content: "Ri", offset: 0, attempt: 2 });
    after = delta(after, "text-delta", { messageId: "m1", content: "late", offset: 5, attempt: 1 });
    expect(message(after, "m1").text).toBe("Ri");
  });

  test("that a dead process left unfinished are removed on the next attempt", () => {
    const after = withEvents(EMPTY, START, [
      "stream-start",
      { messageId: "m2", runId: "r1", model: "gpt", attempt: 2 },
    ]);
    expect(after.order).toEqual(["m2"]);
  });

  test("without text leave only their calls", () => {
    const after = withEvents(EMPTY, START, ["stream-end", { ...END[1], content: "", thinking: null }]);
    expect(after.order).toEqual(["t1", "t2"]);
  });

  test("that are repeated change nothing", () => {
    const after = withEvents(EMPTY, START, END);
    expect(reduce(after, [{ type: "chat:stream-start", payload: START[1], seq: 1 }], NOW)).toBe(after);
  });
});

describe("calls", () => {
  test("show their output while they run, and then their result", () => {
    let after = withEvents(EMPTY, ["tool-start", { toolId: "t1", toolName: "bash", input: { command: "ls" } }]);
    after = delta(after, "tool-delta", { toolId: "t1", chunk: "a\n", offset: 0, attempt: 0 });
    after = delta(after, "tool-delta", { toolId: "t1", chunk: "b\n", offset: 2, attempt: 0 });
    expect(call(after, "t1")).toMatchObject({ status: "running", output: "a\nb\n" });
    after = withEvents(after, [
      "tool-result",
      { toolId: "t1", toolName: "bash", status: "success", result: "a\nb", metadata: {}, durationMs: 12 },
    ]);
    expect(call(after, "t1")).toMatchObject({ status: "success", output: "", result: "a\nb", durationMs: 12 });
  });

  test("wait for a person, and are decided once", () => {
    let after = withEvents(EMPTY, START, END, ["tool-confirm", CONFIRM]);
    expect(waitingCalls(after).map((one) => one.id)).toEqual(["t2"]);
    after = withEvents(after, [
      "pause-ended",
      {
        toolId: "t2",
        pauseId: "a1",
        state: "rejected",
        approved: false,
        reason: "No.",
        decidedBy: "ada",
        scope: null,
      },
    ]);
    expect(call(after, "t2")).toMatchObject({
      status: "rejected",
      pause: { state: "rejected", rejectionReason: "No." },
    });
  });

  test("that are repeated on join keep their place", () => {
    let after = delta(EMPTY, "tool-confirm", { ...CONFIRM, replayed: true });
    after = withEvents(after, START, END, ["tool-confirm", CONFIRM]);
    expect(after.order).toEqual(["m1", "t1", "t2"]);
  });

  test("ask again under a new approval when the first became stale", () => {
    const after = withEvents(
      EMPTY,
      ["tool-confirm", CONFIRM],
      ["tool-confirm", { ...CONFIRM, pauseId: "a2", replaces: "a1" }],
    );
    expect(call(after, "t2").pause).toMatchObject({ id: "a2", replaces: "a1", state: "pending" });
  });

  test("ask questions, which are answered", () => {
    const items = [{ name: "fw", question: "Which?", schema: { type: "string", enum: ["A", "B"] } }];
    let after = withEvents(EMPTY, ["question", { pauseId: "q1", toolId: "t1", questions: items, expiresAt: "" }]);
    expect(waitingCalls(after)).toHaveLength(1);
    after = withEvents(after, [
      "pause-ended",
      { pauseId: "q1", toolId: "t1", state: "answered", answers: { fw: "A" }, decidedBy: "ada" },
    ]);
    expect(call(after, "t1").pause).toMatchObject({ state: "answered", answers: { fw: "A" } });
    expect(waitingCalls(after)).toEqual([]);
  });

  test("that write a plan set the plan to review", () => {
    const planned = withEvents(EMPTY, [
      "tool-result",
      { toolId: "t1", toolName: "plan_write", status: "success", result: '{"path":"/plans/a.plan"}', metadata: {} },
    ]);
    expect(planned.plan).toBe("/plans/a.plan");
  });
});

describe("runs", () => {
  const state = (runId: string, more: Payload): [string, Payload] => [
    "run-state",
    { runId, error: null, endReason: null, turns: 1, inputTokens: 1, outputTokens: 1, ...more },
  ];

  test("are current until they end; queued runs wait", () => {
    let after = withEvents(EMPTY, state("r1", { state: "running" }), state("r2", { state: "queued" }));
    expect(currentRun(after)?.id).toBe("r1");
    after = withEvents(after, state("r1", { state: "ended", endReason: "done" }));
    expect(currentRun(after)).toBeNull();
  });

  test("that compact the conversation show no message, and the context shrinks", () => {
    const summary = { messageId: "s", runId: "r2", role: "summary", content: "Short." };
    const after = withEvents(
      EMPTY,
      state("r2", { state: "queued", prompt: "", compacts: true }),
      state("r2", { state: "running" }),
      ["message", { ...summary, usage: { inputTokens: 9, outputTokens: 1, contextTokens: 7, cost: null } }],
    );
    expect(after.order).toEqual(["s"]);
    expect(after.usage?.contextTokens).toBe(7);
  });

  test("show queued messages until they start, and held ones until they are sent or removed", () => {
    let after = withEvents(
      EMPTY,
      state("r1", { state: "ready" }),
      state("r2", { state: "queued", prompt: "Then this", held: false }),
      state("r3", { state: "queued", prompt: "And that", held: false }),
    );
    expect(after.order).toEqual(["r2", "r3"]);
    after = withEvents(
      after,
      state("r2", { state: "queued", prompt: "Then this", held: true }),
      state("r3", { state: "queued", prompt: "And that", held: true }),
      state("r1", { state: "ended", endReason: "cancelled" }),
    );
    expect(after.rows.r2).toMatchObject({ kind: "message", role: "user", text: "Then this" });
    expect(after.runs.r2).toMatchObject({ state: "queued", held: true });
    after = withEvents(
      after,
      state("r3", { state: "ended", endReason: "cancelled" }),
      ["message", { messageId: "r2", runId: "r2", role: "user", content: "Then this" }],
      state("r2", { state: "ready" }),
    );
    expect(after.order).toEqual(["end-r1", "r2"]);
    expect(currentRun(after)?.id).toBe("r2");
  });

  test("add the cost of turns and summaries until their next state has the sum", () => {
    let after = withEvents(EMPTY, state("r1", { state: "ready", cost: "0", unpricedTurns: 0 }), END);
    const summary = { inputTokens: 5, outputTokens: 5, contextTokens: 9, cost: "0.25" };
    after = withEvents(
      after,
      ["stream-end", { messageId: "m2", runId: "r1", content: "", usage: { ...summary, cost: null } }],
      ["message", { messageId: "s1", runId: "r1", role: "summary", content: "So far.", usage: summary }],
    );
    expect(after.runs.r1).toMatchObject({ cost: 0.25, unpricedTurns: 1 });
    after = withEvents(after, state("r1", { state: "ended", endReason: "done", cost: "0.75", unpricedTurns: 2 }));
    expect(after.runs.r1).toMatchObject({ cost: 0.75, unpricedTurns: 2 });
  });

  test("name the budget that stopped them", () => {
    const stopped = { state: "ended", endReason: "budget" };
    const after = withEvents(
      EMPTY,
      state("r1", { ...stopped, error: { message: "Stopped: this workspace has cost $5.00 today." } }),
      state("r2", stopped),
    );
    expect(after.rows["end-r1"]).toMatchObject({ text: "Stopped: this workspace has cost $5.00 today." });
    expect(after.rows["end-r2"]).toMatchObject({ text: "Stopped: the context is full." });
  });

  test("show why they ended early", () => {
    const after = withEvents(
      EMPTY,
      state("r1", { state: "ended", endReason: "failed", error: { message: "No key." } }),
    );
    expect(after.rows["end-r1"]).toMatchObject({ kind: "note", tone: "bad", text: "No key." });
  });
});

test("a conversation is loaded after its newest event", () => {
  let after = reduce(EMPTY, [{ type: "chat:resumed", payload: { lastSeq: 2 } }], NOW);
  expect(after.isLoaded).toBe(false);
  after = withEvents(after, START, END);
  expect(after.isLoaded).toBe(true);
  expect(reduce(EMPTY, [{ type: "chat:resumed", payload: { lastSeq: 0 } }], NOW).isLoaded).toBe(true);
});

describe("waits", () => {
  const WAITING: Payload = { runId: "r1", state: "waiting", endReason: null, turns: 1 };

  test("a call shows the child run that it started", () => {
    const child = { toolId: "t9", runId: "r2", sessionId: "s2", agent: "reader", title: "Count" };
    const after = withEvents(
      EMPTY,
      ["tool-start", { toolId: "t9", toolName: "run_agent", input: {} }],
      ["child-run", child],
    );
    expect(call(after, "t9").child).toEqual({ runId: "r2", sessionId: "s2", agent: "reader", title: "Count" });
    expect(call(after, "t9").status).toBe("running");
  });

  test("a run says what it waits for until it goes on", () => {
    const waiting = withEvents(EMPTY, ["run-state", { ...WAITING, waitsFor: "child" }]);
    expect(currentRun(waiting)?.waitsFor).toBe("child");
    expect(currentRun(withEvents(waiting, START))?.waitsFor).toBeNull();
    const until = "2026-01-01T12:03:00Z";
    const limited = withEvents(EMPTY, ["run-state", { ...WAITING, state: "ready", waitsFor: "provider", until }]);
    expect(currentRun(limited)).toMatchObject({ waitsFor: "provider", until });
  });
});

describe("files of messages", () => {
  const attachments = [{ path: "shot.png", toolId: "t9" }];
  const stored: [string, Payload][] = [
    ["tool-start", { toolId: "t9", toolName: "attach", input: { name: "shot.png" } }],
    ["tool-result", { toolId: "t9", toolName: "attach", status: "success", result: "", metadata: {} }],
  ];

  test("a message shows its files, and the calls that stored them are not shown", () => {
    const said = { messageId: "m0", runId: "r1", role: "user", content: "Look.", attachments };
    const after = withEvents(EMPTY, ...stored, ["message", said]);

    expect(after.order).toEqual(["m0"]);
    expect(message(after, "m0").attachments).toEqual([{ path: "shot.png", callId: "t9" }]);
  });

  test("so does a queued message", () => {
    const after = withEvents(EMPTY, ["run-state", { runId: "r1", state: "queued", prompt: "Look.", attachments }]);

    expect(message(after, "r1").attachments).toEqual([{ path: "shot.png", callId: "t9" }]);
  });
});
