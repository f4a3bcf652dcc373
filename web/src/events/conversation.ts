/** The conversation of a session: rows in order, with the pauses of calls. Data only. */
import type { Change, Effects, Item, Rule } from "./messages";

/** A file that a message brings: its path or name, and the call whose result has its content. */
export interface Attached {
  path: string;
  callId: string;
}

export interface Message {
  kind: "message";
  id: string;
  role: "user" | "assistant" | "summary";
  runId: string | null;
  /** The person who sent it, by id and name; null for the agent's. */
  authorId: string | null;
  author: string | null;
  text: string;
  attachments: readonly Attached[];
  thinking: string;
  isStreaming: boolean;
  /** The output of the model was truncated. */
  isCut: boolean;
  model: string | null;
  /** The attempt of the text, and the number of code points received of each kind. */
  attempt: number;
  received: { text: number; thinking: number };
}

export type CallStatus = "pending" | "waiting" | "running" | "success" | "error" | "rejected";

export interface Call {
  kind: "call";
  id: string;
  name: string;
  runId: string | null;
  status: CallStatus;
  input: unknown;
  output: string;
  received: { output: number; attempt: number };
  result: string | null;
  metadata: Record<string, unknown>;
  /** Start time and duration, in milliseconds. */
  startedAt: number | null;
  durationMs: number | null;
  /** Isolation level of its program, if it ran one. */
  isolation: string | null;
  /** The last pause of the call. */
  pause: Pause | null;
  /** The child run that the call started. */
  child: ChildRun | null;
}

/** A run that works on a task of another run, in a session of its own. */
export interface ChildRun {
  runId: string;
  sessionId: string;
  agent: string;
  title: string;
}

/** A call that waits, or waited, for a person. */
export type Pause = Approval | Question;

interface AnyPause {
  id: string;
  callId: string;
  expiresAt: string;
  /** `pending` until somebody decides or answers, or it ends otherwise. */
  state: string;
  decidedBy: string | null;
  decidedById: string | null;
  decidedAt: string | null;
}

export interface Approval extends AnyPause {
  kind: "approval";
  tool: string;
  input: unknown;
  agent: string | null;
  sha256: string;
  changes: Change[];
  effects: Effects;
  /** What the person who approved the call had changed in it, by file. */
  edits: readonly { path: string; diff: string | null }[];
  rule: string;
  reason: string;
  isolation: string | null;
  suggestedRule: Rule;
  /** Narrower and wider rules. */
  otherRules: Rule[];
  replaces: string | null;
  rejectionReason: string | null;
  scope: string | null;
}

export interface Question extends AnyPause {
  kind: "question";
  items: Item[];
  answers: Record<string, unknown> | null;
}

/** Why a run ended early, or an error that belongs to no call. */
export interface Note {
  kind: "note";
  id: string;
  runId: string | null;
  tone: "plain" | "bad";
  text: string;
}

export type Row = Message | Call | Note;

export interface Run {
  id: string;
  state: string;
  /** The session was stopped while this run was queued. It starts only when someone sends it. */
  held: boolean;
  /** What it waits for: a `person`, a `child` run, or the `provider` until a time. */
  waitsFor: string | null;
  until: string | null;
  endReason: string | null;
  turns: number;
  inputTokens: number;
  outputTokens: number;
  /** In US dollars, with that of its child runs, as far as prices are known. */
  cost: number;
  unpricedTurns: number;
}

export interface Usage {
  contextTokens: number;
  contextWindow: number | null;
}

export interface Conversation {
  /** The sequence number of the last applied event, to resume from. */
  seq: number;
  /** The newest sequence number on the server. Up to it, events are a replay. */
  lastSeq: number;
  isLoaded: boolean;
  order: readonly string[];
  rows: Readonly<Record<string, Row>>;
  runs: Readonly<Record<string, Run>>;
  usage: Usage | null;
  /** The path of the plan last written in the session. */
  plan: string | null;
}

export const EMPTY: Conversation = {
  seq: 0,
  lastSeq: 0,
  isLoaded: false,
  order: [],
  rows: {},
  runs: {},
  usage: null,
  plan: null,
};

/** Returns the active run, if any. */
export function currentRun(conversation: Conversation): Run | null {
  return Object.values(conversation.runs).find((run) => run.state !== "ended" && run.state !== "queued") ?? null;
}

/** Returns the calls that wait for a person, oldest first. */
export function waitingCalls(conversation: Conversation): Call[] {
  return conversation.order
    .map((id) => conversation.rows[id])
    .filter((row): row is Call => row?.kind === "call" && isPending(row.pause));
}

export function isPending(pause: Pause | null): boolean {
  return pause?.state === "pending";
}

/** Returns the creation time of an id: ids start with a timestamp. */
export function timeOf(id: string): Date | null {
  const digits = id.replaceAll("-", "").slice(0, 12);
  return /^[0-9a-f]{12}$/.test(digits) ? new Date(Number.parseInt(digits, 16)) : null;
}

/** Whether another person has decided or answered it. */
export function isDecidedByOther(pause: Pause, me: string | null): boolean {
  return me !== null && pause.decidedById !== null && pause.decidedById !== me;
}
