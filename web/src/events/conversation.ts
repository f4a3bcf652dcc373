/** A session as it is shown: rows in the order in which things happened, and what waits for a person. Data only. */
import type { Change, Effects, Item, Rule } from "./wire";

export interface Message {
  kind: "message";
  id: string;
  role: "user" | "assistant" | "summary";
  runId: string | null;
  text: string;
  thinking: string;
  isStreaming: boolean;
  /** The model stopped before it was done. */
  isCut: boolean;
  model: string | null;
  /** Which attempt the text is of, and how many characters (code points, as the server counts) of each kind were heard. */
  attempt: number;
  heard: { text: number; thinking: number };
}

export type CallStatus = "asked" | "waiting" | "running" | "success" | "error" | "denied";

export interface Call {
  kind: "call";
  id: string;
  name: string;
  runId: string | null;
  status: CallStatus;
  input: unknown;
  output: string;
  heard: { output: number; attempt: number };
  result: string | null;
  metadata: Record<string, unknown>;
  /** When it began and how long it took, in milliseconds. */
  startedAt: number | null;
  durationMs: number | null;
  /** How well its program was held, if it ran one. */
  isolation: string | null;
  approval: Approval | null;
  question: Question | null;
}

export interface Approval {
  id: string;
  callId: string;
  tool: string;
  input: unknown;
  agent: string | null;
  sha256: string;
  changes: Change[];
  effects: Effects;
  rule: string;
  reason: string;
  isolation: string | null;
  offered: Rule;
  replaces: string | null;
  expiresAt: string;
  /** `open` until someone decided or it ended by itself. */
  state: string;
  decidedBy: string | null;
  denial: string | null;
  scope: string | null;
}

export interface Question {
  id: string;
  callId: string;
  items: Item[];
  expiresAt: string;
  state: string;
  answers: Record<string, unknown> | null;
  answeredBy: string | null;
}

/** How a run ended, if not simply by being done; or an error that belongs to no call. */
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
  ending: string | null;
  turns: number;
  inputTokens: number;
  outputTokens: number;
}

export interface Usage {
  contextTokens: number;
  contextWindow: number | null;
}

export interface Conversation {
  /** The number of the last event that was taken; where to resume. */
  seq: number;
  /** The newest number that the server has told of: until it is reached, the past is being read. */
  newest: number;
  isLoaded: boolean;
  order: readonly string[];
  rows: Readonly<Record<string, Row>>;
  runs: Readonly<Record<string, Run>>;
  usage: Usage | null;
  /** The path of the plan that was last written here. */
  plan: string | null;
}

export const EMPTY: Conversation = {
  seq: 0,
  newest: 0,
  isLoaded: false,
  order: [],
  rows: {},
  runs: {},
  usage: null,
  plan: null,
};

/** The run that is under way, if one is. */
export function currentRun(conversation: Conversation): Run | null {
  return Object.values(conversation.runs).find((run) => run.state !== "ended" && run.state !== "queued") ?? null;
}

/** The calls that wait for a person, oldest first. */
export function waitingCalls(conversation: Conversation): Call[] {
  return conversation.order
    .map((id) => conversation.rows[id])
    .filter((row): row is Call => row?.kind === "call" && (isOpen(row.approval) || isOpen(row.question)));
}

export function isOpen(asked: { state: string } | null): boolean {
  return asked?.state === "open";
}

/** When something was made: our ids begin with the time. */
export function timeOf(id: string): Date | null {
  const digits = id.replaceAll("-", "").slice(0, 12);
  return /^[0-9a-f]{12}$/.test(digits) ? new Date(Number.parseInt(digits, 16)) : null;
}
