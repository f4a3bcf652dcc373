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

export interface Change {
  path: string | null;
  change: string;
  kind?: string;
  from_path?: string | null;
  after?: { sha256: string | null } | null;
  added?: number;
  removed?: number;
  diff?: string;
  /** The event truncated the diff; the approval has all of it. */
  diff_omitted?: boolean;
  count?: number;
}

export interface Rule {
  tool: string;
  paths: string[] | null;
  commands: string[] | null;
}

export interface Effects {
  reads?: string[];
  writes?: string[];
  runs?: string | null;
  contacts?: string[];
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
