/** Applies events and deltas to a conversation. Pure: the same events give the same conversation, live or replayed. */
import type { Approval, Attached, Call, Conversation, Message, Note, Pause, Row, Run } from "./conversation";
import type { Payload, ServerMessage } from "./messages";

/** Applies messages in order. Returns the same object if nothing changed. */
export function reduce(before: Conversation, messages: readonly ServerMessage[], now: number): Conversation {
  const draft = new Draft(before, now);
  for (const message of messages) draft.add(message);
  return draft.done();
}

/** A mutable copy for one batch. Unchanged parts are shared with the conversation before it. */
class Draft {
  #conversation: Conversation;
  #order: string[] | null = null;
  #rows: Record<string, Row> | null = null;
  #runs: Record<string, Run> | null = null;
  #isReplay = false;

  constructor(
    readonly before: Conversation,
    readonly now: number,
  ) {
    this.#conversation = before;
  }

  done(): Conversation {
    if (this.#order) this.#change({ order: this.#order });
    if (this.#rows) this.#change({ rows: this.#rows });
    if (this.#runs) this.#change({ runs: this.#runs });
    return this.#conversation;
  }

  add({ type, payload, seq }: ServerMessage): void {
    // The server repeats paused calls on join. The events already contain them, in order.
    if (payload.replayed) return;
    if (seq !== undefined) {
      // Received twice, for example after a resume.
      if (seq <= this.#conversation.seq) return;
      this.#isReplay = seq <= this.#conversation.lastSeq;
      this.#change({ seq });
    } else {
      this.#isReplay = false;
    }
    this.#apply(type, payload);
    if (!this.#conversation.isLoaded && seq !== undefined && seq >= this.#conversation.lastSeq) {
      this.#change({ isLoaded: true });
    }
  }

  #apply(type: string, payload: Payload): void {
    switch (type) {
      case "chat:resumed":
        this.#change({ lastSeq: payload.lastSeq });
        if (payload.lastSeq <= this.#conversation.seq) this.#change({ isLoaded: true });
        break;
      case "chat:message":
        this.#message(payload);
        break;
      case "chat:stream-start":
        this.#streamStart(payload);
        break;
      case "chat:text-delta":
        this.#textDelta(payload, "text");
        break;
      case "chat:thinking-delta":
        this.#textDelta(payload, "thinking");
        break;
      case "chat:stream-end":
        this.#streamEnd(payload);
        break;
      case "chat:tool-start":
        this.#toolStart(payload);
        break;
      case "chat:tool-delta":
        this.#toolDelta(payload);
        break;
      case "chat:tool-result":
        this.#toolResult(payload);
        break;
      case "chat:tool-confirm":
        this.#confirm(payload);
        break;
      case "chat:question":
        this.#question(payload);
        break;
      case "chat:pause-ended":
        this.#pauseEnded(payload);
        break;
      case "chat:child-run":
        this.#childRun(payload);
        break;
      case "chat:run-state":
        this.#runState(payload);
        break;
      case "chat:error":
        this.#error(payload);
        break;
    }
  }

  // Messages

  #message({ messageId, role, runId, content, attachments, usage, ...by }: Payload): void {
    // A queued message moves to its place in the conversation.
    this.#remove(messageId);
    this.#put({
      ...newMessage(messageId, runId ?? null),
      role,
      ...authorOf(by),
      text: content,
      attachments: attachedOf(attachments),
    });
    if (usage) {
      const contextWindow = this.#conversation.usage?.contextWindow ?? null;
      this.#change({ usage: { contextTokens: usage.contextTokens, contextWindow } });
      this.#addUsage(runId, usage);
    }
  }

  #streamStart({ messageId, runId, model, attempt }: Payload): void {
    this.#dropUnfinished(runId);
    this.#goesOn(runId);
    this.#put({ ...newMessage(messageId, runId), isStreaming: true, model, attempt });
  }

  #textDelta({ messageId, content, offset, attempt }: Payload, what: "text" | "thinking"): void {
    const message = this.#rows_()[messageId];
    if (message?.kind !== "message" || !message.isStreaming || attempt < message.attempt) return;
    const fresh =
      attempt > message.attempt ? { ...message, attempt, text: "", thinking: "", received: NONE_RECEIVED } : message;
    const piece = newPart(content, offset, fresh.received[what]);
    if (piece === "" && fresh === message) return;
    const received = { ...fresh.received, [what]: Math.max(fresh.received[what], offset + lengthOf(content)) };
    this.#put({ ...fresh, [what]: fresh[what] + piece, received });
  }

  #streamEnd({ messageId, runId, content, thinking, toolCalls, finishReason, usage }: Payload): void {
    const final = { text: String(content ?? "").trim(), thinking: String(thinking ?? "") };
    if (final.text === "" && final.thinking === "") this.#remove(messageId);
    else {
      const before = this.#rows_()[messageId];
      const message = before?.kind === "message" ? before : newMessage(messageId, runId);
      this.#put({ ...message, ...final, isStreaming: false, isCut: finishReason === "cut" });
    }
    for (const { toolId, toolName } of toolCalls ?? []) this.#call(toolId, toolName, { runId });
    if (usage) {
      this.#change({ usage: { contextTokens: usage.contextTokens, contextWindow: usage.contextWindow } });
      this.#addUsage(runId, usage);
    }
  }

  /** Counts a turn at once. The next state of the run has the sum, with its child runs. */
  #addUsage(runId: string, { inputTokens, outputTokens, cost }: Payload): void {
    const run = this.#runs_()[runId];
    if (run === undefined || inputTokens + outputTokens === 0) return;
    this.#putRun({
      ...run,
      inputTokens: run.inputTokens + inputTokens,
      outputTokens: run.outputTokens + outputTokens,
      cost: run.cost + Number(cost ?? 0),
      unpricedTurns: run.unpricedTurns + (cost === null ? 1 : 0),
    });
  }

  /** Removes the partial message of a process that died. The next process asks the model again. */
  #dropUnfinished(runId: string): void {
    for (let at = this.#order_().length - 1; at >= 0; at--) {
      const row = this.#rows_()[this.#order_()[at] as string];
      if (row?.kind === "message" && row.role === "user") return;
      if (row?.kind === "message" && row.isStreaming && row.runId === runId) this.#remove(row.id);
    }
  }

  // Calls

  #toolStart({ toolId, toolName, input }: Payload): void {
    if (this.#isOfMessage(toolId, toolName)) return;
    this.#call(toolId, toolName, { status: "running", input, startedAt: this.#isReplay ? null : this.now });
    if (/^plan_(write|edit)$/.test(toolName) && typeof input?.path === "string") this.#change({ plan: input.path });
  }

  #toolDelta({ toolId, chunk, offset, attempt }: Payload): void {
    const call = this.#rows_()[toolId];
    if (call?.kind !== "call" || call.result !== null || attempt < call.received.attempt) return;
    const before =
      attempt > call.received.attempt
        ? { output: "", received: 0 }
        : { output: call.output, received: call.received.output };
    const output = before.output + newPart(chunk, offset, before.received);
    const received = { attempt, output: Math.max(before.received, offset + lengthOf(chunk)) };
    this.#put({ ...call, output: output.slice(-MAX_OUTPUT), received });
  }

  #toolResult({ toolId, toolName, status, result, metadata, durationMs, isolation }: Payload): void {
    if (this.#isOfMessage(toolId, toolName)) return;
    const before = this.#rows_()[toolId];
    const startedAt = before?.kind === "call" ? before.startedAt : null;
    const isRejected = before?.kind === "call" && before.pause?.state === "rejected";
    this.#call(toolId, toolName, {
      status: status === "success" ? "success" : isRejected ? "rejected" : "error",
      result,
      metadata,
      isolation: isolation ?? null,
      output: "",
      durationMs: durationMs ?? metadata?.durationMs ?? (startedAt === null ? null : this.now - startedAt),
    });
    const plan = toolName === "plan_write" && status === "success" ? planOf(result) : null;
    if (plan) this.#change({ plan });
  }

  /** Whether a person's call stores a file of the next message, which shows it. */
  #isOfMessage(toolId: string, toolName: string): boolean {
    return toolName === "attach" && this.#rows_()[toolId] === undefined;
  }

  #childRun({ toolId, runId, sessionId, agent, title }: Payload): void {
    this.#call(toolId, "run_agent", { child: { runId, sessionId, agent, title: title ?? "" } });
  }

  #call(id: string, name: string, more: Partial<Call>): void {
    const before = this.#rows_()[id];
    this.#put({ ...(before?.kind === "call" ? before : newCall(id, name)), ...more });
  }

  // Paused calls

  #confirm(payload: Payload): void {
    const approval = approvalOf(payload);
    this.#pause(approval, approval.tool, { input: approval.input });
  }

  #question({ pauseId, toolId, questions, expiresAt }: Payload): void {
    const facts = { id: pauseId, callId: toolId, items: questions, expiresAt };
    this.#pause({ kind: "question", ...facts, ...UNDECIDED, answers: null }, "ask_user");
  }

  #pause(pause: Pause, tool: string, more: Partial<Call> = {}): void {
    const before = this.#rows_()[pause.callId];
    if (before?.kind === "call" && before.pause?.id === pause.id) return;
    this.#call(pause.callId, tool, { ...more, status: "waiting", pause });
  }

  #pauseEnded({ toolId, pauseId, state, reason, scope, answers, ...by }: Payload): void {
    const call = this.#rows_()[toolId];
    if (call?.kind !== "call" || call.pause === null || call.pause.id !== pauseId) return;
    const decided = {
      state,
      decidedBy: by.decidedBy ?? null,
      decidedById: by.decidedById ?? null,
      decidedAt: by.decidedAt ?? null,
    };
    if (call.pause.kind === "question") {
      this.#put({ ...call, status: "running", pause: { ...call.pause, ...decided, answers } });
      return;
    }
    const pause: Approval = { ...call.pause, ...decided, scope, rejectionReason: reason };
    this.#put({ ...call, pause, status: state === "approved" ? "pending" : "rejected" });
  }

  // Runs

  #runState({
    runId,
    state,
    held,
    prompt,
    endReason,
    error,
    turns,
    inputTokens,
    outputTokens,
    ...more
  }: Payload): void {
    const before = this.#runs_()[runId];
    const waits = { waitsFor: more.waitsFor ?? null, until: more.until ?? null };
    const used = {
      turns,
      inputTokens,
      outputTokens,
      cost: Number(more.cost ?? 0),
      unpricedTurns: more.unpricedTurns ?? 0,
    };
    this.#putRun({ id: runId, state, held: held === true, ...waits, endReason, ...used });
    // A run that compacts the conversation brings no message.
    if (state === "queued" && more.compacts !== true) {
      const attachments = attachedOf(more.attachments);
      this.#put({ ...newMessage(runId, runId), role: "user", ...authorOf(more), text: prompt ?? "", attachments });
    }
    if (state !== "ended") return;
    if (before?.state === "queued") {
      this.#remove(runId);
      return;
    }
    this.#dropUnfinished(runId);
    if (endReason !== "done") this.#put(endOf(runId, endReason, error));
  }

  /** A run that has waited says nothing when it goes on, other than by what it does. */
  #goesOn(runId: string): void {
    const run = this.#runs_()[runId];
    if (run === undefined || run.waitsFor === null) return;
    this.#putRun({ ...run, waitsFor: null, until: null });
  }

  #error({ message, code }: Payload): void {
    const id = `error-${this.#conversation.seq}-${this.#order_().length}`;
    this.#put({ kind: "note", id, runId: null, tone: "bad", text: message ?? code });
  }

  // Updates of the copy

  #put(row: Row): void {
    const rows = this.#ownRows();
    if (rows[row.id] === undefined) this.#ownOrder().push(row.id);
    rows[row.id] = row;
  }

  #putRun(run: Run): void {
    this.#runs ??= { ...this.#conversation.runs };
    this.#runs[run.id] = run;
  }

  #remove(id: string): void {
    if (this.#rows_()[id] === undefined) return;
    delete this.#ownRows()[id];
    const order = this.#ownOrder();
    order.splice(order.lastIndexOf(id), 1);
  }

  #change(change: Partial<Conversation>): void {
    this.#conversation = { ...this.#conversation, ...change };
  }

  #rows_(): Readonly<Record<string, Row>> {
    return this.#rows ?? this.#conversation.rows;
  }

  #order_(): readonly string[] {
    return this.#order ?? this.#conversation.order;
  }

  #runs_(): Readonly<Record<string, Run>> {
    return this.#runs ?? this.#conversation.runs;
  }

  #ownRows(): Record<string, Row> {
    this.#rows ??= { ...this.#conversation.rows };
    return this.#rows;
  }

  #ownOrder(): string[] {
    this.#order ??= [...this.#conversation.order];
    return this.#order;
  }
}

const UNDECIDED = { state: "pending", decidedBy: null, decidedById: null, decidedAt: null };
const NONE_RECEIVED = { text: 0, thinking: 0 };
/** Only the end of a longer output is shown while it streams. The result has all that the tool returned. */
const MAX_OUTPUT = 50_000;

function newMessage(id: string, runId: string | null): Message {
  return {
    kind: "message",
    id,
    role: "assistant",
    runId,
    authorId: null,
    author: null,
    text: "",
    attachments: [],
    thinking: "",
    isStreaming: false,
    isCut: false,
    model: null,
    attempt: 0,
    received: NONE_RECEIVED,
  };
}

function authorOf({ authorId, author }: Payload): Pick<Message, "authorId" | "author"> {
  return { authorId: authorId ?? null, author: author ?? null };
}

function attachedOf(files: { path: string; toolId: string }[] | undefined): Attached[] {
  return (files ?? []).map(({ path, toolId }) => ({ path, callId: toolId }));
}

function newCall(id: string, name: string): Call {
  return {
    kind: "call",
    id,
    name,
    runId: null,
    status: "pending",
    input: null,
    output: "",
    received: { output: 0, attempt: 0 },
    result: null,
    metadata: {},
    startedAt: null,
    durationMs: null,
    isolation: null,
    pause: null,
    child: null,
  };
}

/** Converts an event payload to an approval. */
function approvalOf(payload: Payload): Approval {
  return {
    kind: "approval",
    id: payload.pauseId,
    callId: payload.toolId,
    tool: payload.toolName,
    input: payload.input,
    agent: payload.agent,
    sha256: payload.argumentsSha256,
    changes: payload.changes ?? [],
    effects: payload.effects ?? {},
    rule: payload.rule,
    reason: payload.reason,
    isolation: payload.isolation,
    suggestedRule: payload.suggestedRule,
    otherRules: payload.otherRules ?? [],
    replaces: payload.replaces,
    expiresAt: payload.expiresAt,
    ...UNDECIDED,
    rejectionReason: null,
    edits: [],
    scope: null,
  };
}

const ENDINGS: Record<string, string> = {
  "turn-limit": "Stopped: turn limit reached.",
  budget: "Stopped: the context is full.",
  deadline: "Stopped: time limit reached.",
  cancelled: "Cancelled.",
  violation: "Stopped: a call violated the agent's limits.",
};

function endOf(runId: string, endReason: string, error: { message?: string } | null): Note {
  // A budget's message names it and says what to do.
  const ending = endReason === "budget" ? (error?.message ?? ENDINGS[endReason]) : ENDINGS[endReason];
  const text = ending ?? error?.message ?? "The run failed.";
  return { kind: "note", id: `end-${runId}`, runId, tone: endReason === "cancelled" ? "plain" : "bad", text };
}

/** Returns the part of a chunk that is new. The server sends chunks again after a join. */
function newPart(piece: string, offset: number, received: number): string {
  if (offset >= received) return piece;
  return Array.from(piece)
    .slice(received - offset)
    .join("");
}

/** Counts code points, as the server does. */
function lengthOf(text: string): number {
  let length = 0;
  for (const _ of text) length++;
  return length;
}

function planOf(result: unknown): string | null {
  try {
    const parsed = JSON.parse(String(result));
    return typeof parsed?.path === "string" ? parsed.path : null;
  } catch {
    return null;
  }
}
