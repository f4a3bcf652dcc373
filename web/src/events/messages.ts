/** Messages from the server over the WebSocket: `{type, payload, seq?}`. See docs/reference/events.md. */

export interface ServerMessage {
  type: string;
  payload: Payload;
  /** Events have a sequence number; deltas and responses have none. */
  seq?: number;
  /** The id of the request that this message responds to. */
  id?: string | number;
}

// biome-ignore lint/suspicious/noExplicitAny: each type has its own fields; the reducer names those that it reads
export type Payload = Record<string, any>;

/** A file before or after a change. */
export interface FileSide {
  sha256: string | null;
  size: number;
  mode: string;
}

export interface Change {
  path: string | null;
  change: string;
  kind?: string | null;
  /** The path before a move. */
  from?: string | null;
  target?: string | null;
  was_kind?: string | null;
  was_target?: string | null;
  before?: FileSide | null;
  after?: FileSide | null;
  added?: number | null;
  removed?: number | null;
  diff?: string | null;
  /** Why changed content has no diff. */
  no_diff?: string | null;
  /** The event truncated the diff; the approval has all of it. */
  diff_omitted?: boolean | null;
  number?: number | null;
  next_line?: number | null;
  count?: number | null;
}

/** What a grant covers: calls of these tools that are within everything else that is given. */
export interface Rule {
  tools: string[];
  paths?: string[] | null;
  commands?: string[] | null;
  hosts?: string[] | null;
  arguments?: Record<string, string> | null;
  access?: string[] | null;
}

export interface Effects {
  reads?: string[];
  writes?: string[];
  runs?: string | null;
  contacts?: string[];
  access?: string[] | null;
}

export interface Item {
  name: string;
  question: string;
  schema: JsonSchema;
  buttons?: { label: string; value: string }[];
}

export interface JsonSchema {
  type?: string | string[];
  enum?: unknown[];
  items?: JsonSchema;
  title?: string;
  description?: string;
  default?: unknown;
  minimum?: number;
  maximum?: number;
  minLength?: number;
  maxLength?: number;
  pattern?: string;
}
