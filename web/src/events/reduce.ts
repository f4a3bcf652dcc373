/** What each event and delta makes of a conversation. Pure: the same events make the same conversation, live or later. */
import type { Approval, Call, Conversation, Message, Note, Question, Row, Run } from "./conversation";
import type { Payload, Told } from "./wire";

/** Takes what was told, in order. Gives the same object if none of it said anything new. */
export function reduce(before: Conversation, told: readonly Told[], now: number): Conversation {
  const draft = new Draft(before, now);
  for (const one of told) draft.take(one);
  return draft.done();
}

/** A copy that is written to while a batch is taken; whatever does not change is shared with what was before. */
class Draft {
  #conversation: Conversation;
  #order: string[] | null = null;
  #rows: Record<string, Row> | null = null;
  #isPast = false;

  constructor(
    readonly before: Conversation,
    readonly now: number,
  ) {
    this.#conversation = before;
  }

  done(): Conversation {
    if (this.#order) this.#change({ order: this.#order });
    if (this.#rows) this.#change({ rows: this.#rows });
    return this.#conversation;
  }

  take({ type, payload, seq }: Told): void {
    // What is open is told first to whoever joins. Who has every event knows it from them, and at its place.
    if (payload.again) return;
    if (seq !== undefined) {
      // Told twice, as after a resume from an older number.
      if (seq <= this.#conversation.seq) return;
      this.#isPast = seq <= this.#conversation.newest;
      this.#change({ seq });
    } else {
      this.#isPast = false;
    }
    this.#obey(type, payload);
    if (!this.#conversation.isLoaded && seq !== undefined && seq >= this.#conversation.newest) {
      this.#change({ isLoaded: true });
    }
  }

  #obey(type: string, payload: Payload): void {
    switch (type) {
      case "chat:resumed":
        this.#change({ newest: payload.newest });
        if (payload.newest <= this.#conversation.seq) this.#change({ isLoaded: true });
        break;
      case "chat:message":
        this.#message(payload);
        break;
      case "chat:stream-start":
        this.#streamStart(payload);
        break;
      case "chat:text-delta":
        this.#heard(payload, "text");
        break;
      case "chat:thinking-delta":
        this.#heard(payload, "thinking");
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
      case "chat:tool-decided":
        this.#decided(payload);
        break;
      case "chat:question":
        this.#question(payload);
        break;
      case "chat:answer":
        this.#answered(payload);
        break;
      case "chat:run-state":
        this.#runState(payload);
        break;
      case "chat:error":
        this.#error(payload);
        break;
    }
  }

  // What was said

  #message({ messageId, role, runId, content }: Payload): void {
    this.#put({ ...newMessage(messageId, runId ?? null), role: role === "user" ? "user" : "summary", text: content });
  }

  #streamStart({ messageId, runId, model, attempt }: Payload): void {
    this.#dropUnfinished(runId);
    this.#put({ ...newMessage(messageId, runId), isStreaming: true, model, attempt });
  }

  #heard({ messageId, content, offset, attempt }: Payload, what: "text" | "thinking"): void {
    const message = this.#rows_()[messageId];
    if (message?.kind !== "message" || !message.isStreaming || attempt < message.attempt) return;
    const fresh = attempt > message.attempt ? { ...message, attempt, text: "", thinking: "", heard: NOTHING } : message;
    const piece = newPart(content, offset, fresh.heard[what]);
    if (piece === "" && fresh === message) return;
    const heard = { ...fresh.heard, [what]: Math.max(fresh.heard[what], offset + lengthOf(content)) };
    this.#put({ ...fresh, [what]: fresh[what] + piece, heard });
  }

  #streamEnd({ messageId, runId, content, thinking, toolCalls, finishReason, usage }: Payload): void {
    const said = { text: String(content ?? "").trim(), thinking: String(thinking ?? "") };
    if (said.text === "" && said.thinking === "") this.#remove(messageId);
    else {
      const before = this.#rows_()[messageId];
      const message = before?.kind === "message" ? before : newMessage(messageId, runId);
      this.#put({ ...message, ...said, isStreaming: false, isCut: finishReason === "cut" });
    }
    for (const { toolId, toolName } of toolCalls ?? []) this.#call(toolId, toolName, { runId });
    if (usage) this.#change({ usage: { contextTokens: usage.contextTokens, contextWindow: usage.contextWindow } });
  }

  /** A process that died left half an answer, and the next one asked anew. */
  #dropUnfinished(runId: string): void {
    for (let at = this.#order_().length - 1; at >= 0; at--) {
      const row = this.#rows_()[this.#order_()[at] as string];
      if (row?.kind === "message" && row.role === "user") return;
      if (row?.kind === "message" && row.isStreaming && row.runId === runId) this.#remove(row.id);
    }
  }

  // Calls

  #toolStart({ toolId, toolName, input }: Payload): void {
    this.#call(toolId, toolName, { status: "running", input, startedAt: this.#isPast ? null : this.now });
    if (/^plan_(write|edit)$/.test(toolName) && typeof input?.path === "string") this.#change({ plan: input.path });
  }

  #toolDelta({ toolId, chunk, offset, attempt }: Payload): void {
    const call = this.#rows_()[toolId];
    if (call?.kind !== "call" || call.result !== null || attempt < call.heard.attempt) return;
    const before =
      attempt > call.heard.attempt ? { output: "", heard: 0 } : { output: call.output, heard: call.heard.output };
    const output = before.output + newPart(chunk, offset, before.heard);
    const heard = { attempt, output: Math.max(before.heard, offset + lengthOf(chunk)) };
    this.#put({ ...call, output: output.slice(-MAX_OUTPUT), heard });
  }

  #toolResult({ toolId, toolName, status, result, metadata, durationMs, isolation }: Payload): void {
    const before = this.#rows_()[toolId];
    const startedAt = before?.kind === "call" ? before.startedAt : null;
    const isDenied = before?.kind === "call" && before.approval?.state === "denied";
    this.#call(toolId, toolName, {
      status: status === "success" ? "success" : isDenied ? "denied" : "error",
      result,
      metadata,
      isolation: isolation ?? null,
      output: "",
      durationMs: durationMs ?? metadata?.durationMs ?? (startedAt === null ? null : this.now - startedAt),
    });
    const plan = toolName === "plan_write" && status === "success" ? planOf(result) : null;
    if (plan) this.#change({ plan });
  }

  #call(id: string, name: string, more: Partial<Call>): void {
    const before = this.#rows_()[id];
    this.#put({ ...(before?.kind === "call" ? before : newCall(id, name)), ...more });
  }

  // What people are asked

  #confirm(payload: Payload): void {
    const approval = approvalOf(payload);
    const before = this.#rows_()[approval.callId];
    if (before?.kind === "call" && before.approval?.id === approval.id) return;
    this.#call(approval.callId, approval.tool, { status: "waiting", input: approval.input, approval });
  }

  #decided({ toolId, approvalId, state, reason, decidedBy, scope }: Payload): void {
    const call = this.#rows_()[toolId];
    if (call?.kind !== "call" || call.approval === null || call.approval.id !== approvalId) return;
    const approval: Approval = { ...call.approval, state, decidedBy, scope, denial: reason };
    this.#put({ ...call, approval, status: state === "allowed" ? "asked" : "denied" });
  }

  #question({ questionId, toolId, questions, expiresAt }: Payload): void {
    const before = this.#rows_()[toolId];
    if (before?.kind === "call" && before.question?.id === questionId) return;
    const question: Question = {
      id: questionId,
      callId: toolId,
      items: questions,
      expiresAt,
      state: "open",
      answers: null,
      answeredBy: null,
    };
    this.#call(toolId, "ask_user", { status: "waiting", question });
  }

  #answered({ questionId, toolId, state, answers, answeredBy }: Payload): void {
    const call = this.#rows_()[toolId];
    if (call?.kind !== "call" || call.question === null || call.question.id !== questionId) return;
    this.#put({ ...call, status: "running", question: { ...call.question, state, answers, answeredBy } });
  }

  // Runs

  #runState({ runId, state, ending, error, turns, inputTokens, outputTokens }: Payload): void {
    const run: Run = { id: runId, state, ending, turns, inputTokens, outputTokens };
    this.#change({ runs: { ...this.#conversation.runs, [runId]: run } });
    if (state !== "ended") return;
    this.#dropUnfinished(runId);
    if (ending !== "done") this.#put(endOf(runId, ending, error));
  }

  #error({ message, code }: Payload): void {
    const id = `error-${this.#conversation.seq}-${this.#order_().length}`;
    this.#put({ kind: "note", id, runId: null, tone: "bad", text: message ?? code });
  }

  // Writing

  #put(row: Row): void {
    const rows = this.#ownRows();
    if (rows[row.id] === undefined) this.#ownOrder().push(row.id);
    rows[row.id] = row;
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

  #ownRows(): Record<string, Row> {
    this.#rows ??= { ...this.#conversation.rows };
    return this.#rows;
  }

  #ownOrder(): string[] {
    this.#order ??= [...this.#conversation.order];
    return this.#order;
  }
}

const NOTHING = { text: 0, thinking: 0 };
/** Of a longer output only the end is shown while it comes; the result has it as the tool gave it. */
const MAX_OUTPUT = 50_000;

function newMessage(id: string, runId: string | null): Message {
  return {
    kind: "message",
    id,
    role: "assistant",
    runId,
    text: "",
    thinking: "",
    isStreaming: false,
    isCut: false,
    model: null,
    attempt: 0,
    heard: NOTHING,
  };
}

function newCall(id: string, name: string): Call {
  return {
    kind: "call",
    id,
    name,
    runId: null,
    status: "asked",
    input: null,
    output: "",
    heard: { output: 0, attempt: 0 },
    result: null,
    metadata: {},
    startedAt: null,
    durationMs: null,
    isolation: null,
    approval: null,
    question: null,
  };
}

/** An approval, as the event of a session tells it. */
function approvalOf(payload: Payload): Approval {
  return {
    id: payload.approvalId,
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
    offered: payload.offeredRule,
    replaces: payload.replaces,
    expiresAt: payload.expiresAt,
    state: "open",
    decidedBy: null,
    denial: null,
    scope: null,
  };
}

const ENDINGS: Record<string, string> = {
  "turn-limit": "Stopped: it took as many turns as it may.",
  budget: "Stopped: its budget of tokens is spent.",
  deadline: "Stopped: its time is over.",
  cancelled: "Stopped by a person.",
  violation: "Stopped: it left the bounds that its agent has.",
};

function endOf(runId: string, ending: string, error: { message?: string } | null): Note {
  const text = ENDINGS[ending] ?? error?.message ?? "The run failed.";
  return { kind: "note", id: `end-${runId}`, runId, tone: ending === "cancelled" ? "plain" : "bad", text };
}

/** What a piece says that was not heard yet. Pieces come again to whoever joins in the middle. */
function newPart(piece: string, offset: number, heard: number): string {
  if (offset >= heard) return piece;
  return Array.from(piece)
    .slice(heard - offset)
    .join("");
}

/** As the server counts: characters, of which some take two places here. */
function lengthOf(text: string): number {
  let length = 0;
  for (const _ of text) length++;
  return length;
}

function planOf(result: unknown): string | null {
  try {
    const said = JSON.parse(String(result));
    return typeof said?.path === "string" ? said.path : null;
  } catch {
    return null;
  }
}
