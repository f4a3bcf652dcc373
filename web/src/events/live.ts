/** The one WebSocket of a workspace: comes back by itself, resumes after the last number, and feeds the store. */
import { createStore } from "zustand/vanilla";
import { ApiError, api } from "../api/client";
import { type Conversation, EMPTY } from "./conversation";
import { reduce } from "./reduce";
import type { Payload, Told } from "./wire";

export type Status = "connecting" | "live" | "away";

export interface LiveState {
  status: Status;
  conversations: Readonly<Record<string, Conversation>>;
}

const FIRST_WAIT = 300;
const LONGEST_WAIT = 10_000;

interface Asked {
  resolve: (payload: Payload) => void;
  reject: (error: Error) => void;
}

export class Live {
  readonly store = createStore<LiveState>(() => ({ status: "connecting", conversations: {} }));
  readonly #workspaceId: string;
  #socket: WebSocket | null = null;
  #watchers = new Map<string, number>();
  #asked = new Map<number, Asked>();
  #number = 0;
  #wait = FIRST_WAIT;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #isClosed = false;
  /** What was told since it was last taken into the store. */
  #told = new Map<string, Told[]>();
  #isScheduled = false;
  #listeners = new Set<(told: Told) => void>();

  constructor(workspaceId: string) {
    this.#workspaceId = workspaceId;
    this.#connect();
  }

  /** Is told a session's events for as long as somebody watches it. Gives the way to stop. */
  watch(sessionId: string): () => void {
    const count = this.#watchers.get(sessionId) ?? 0;
    this.#watchers.set(sessionId, count + 1);
    if (count === 0) this.#resume(sessionId);
    return () => {
      const left = (this.#watchers.get(sessionId) ?? 1) - 1;
      if (left > 0) {
        this.#watchers.set(sessionId, left);
        return;
      }
      this.#watchers.delete(sessionId);
      if (this.#isOpen()) this.#say("chat:leave", { conversationId: sessionId });
    };
  }

  /** Hears every event (not deltas) of the sessions that are watched, such as what asks for a decision. */
  listen(listener: (told: Told) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Asks the server for something; rejects with what it said if it refuses. */
  ask(type: string, payload: Payload): Promise<Payload> {
    if (!this.#isOpen()) {
      return Promise.reject(new Error("The server cannot be reached just now. Try again in a moment."));
    }
    const id = this.#say(type, payload);
    return new Promise((resolve, reject) => this.#asked.set(id, { resolve, reject }));
  }

  close(): void {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    this.#socket?.close();
  }

  #isOpen(): boolean {
    return this.#socket?.readyState === WebSocket.OPEN;
  }

  #say(type: string, payload: Payload): number {
    const id = ++this.#number;
    this.#socket?.send(JSON.stringify({ type, payload, id }));
    return id;
  }

  #connect(): void {
    const address = `/api/v1/workspaces/${this.#workspaceId}/ws`;
    const socket = new WebSocket(address, "toolcrib.chat");
    this.#socket = socket;
    socket.onopen = () => {
      this.#wait = FIRST_WAIT;
      this.store.setState({ status: "live" });
      for (const sessionId of this.#watchers.keys()) this.#resume(sessionId);
    };
    socket.onmessage = (frame) => this.#hear(JSON.parse(frame.data) as Told);
    socket.onclose = () => this.#lost();
  }

  #lost(): void {
    for (const asked of this.#asked.values()) asked.reject(new Error("The connection was lost before an answer came."));
    this.#asked.clear();
    if (this.#isClosed) return;
    this.store.setState({ status: "away" });
    this.#timer = setTimeout(() => void this.#comeBack(), this.#wait);
    this.#wait = Math.min(this.#wait * 2, LONGEST_WAIT);
  }

  /** A browser is not told why it was refused, so the API is asked: it renews the login, or says that there is none. */
  async #comeBack(): Promise<void> {
    try {
      const { response } = await api.GET("/api/v1/auth/me");
      if (response.status === 401) return;
    } catch (error) {
      if (error instanceof ApiError) throw error;
      // Nobody answers yet.
    }
    if (!this.#isClosed) this.#connect();
  }

  #resume(sessionId: string): void {
    if (!this.#isOpen()) return;
    this.#flush();
    const after = this.store.getState().conversations[sessionId]?.seq ?? 0;
    this.#say("chat:resume", { conversationId: sessionId, after });
  }

  #hear(told: Told): void {
    if (told.id !== undefined) this.#answer(told);
    const sessionId = told.payload.conversationId;
    if (told.type === "chat:ok" || typeof sessionId !== "string") return;
    // An error without a number answers what we asked; it is no part of the conversation.
    if (told.type === "chat:error" && told.seq === undefined) return;
    const waiting = this.#told.get(sessionId);
    if (waiting) waiting.push(told);
    else this.#told.set(sessionId, [told]);
    if (told.seq !== undefined) for (const listener of this.#listeners) listener(told);
    this.#schedule();
  }

  #answer({ id, type, payload }: Told): void {
    const asked = this.#asked.get(Number(id));
    this.#asked.delete(Number(id));
    if (type === "chat:error") asked?.reject(new ApiError(0, payload.code, payload.message, payload.fields ?? {}));
    else asked?.resolve(payload);
  }

  /** Takes what came together into the store together: once per picture, or soon if there are none to draw. */
  #schedule(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    if (document.hidden) setTimeout(() => this.#flush(), 100);
    else requestAnimationFrame(() => this.#flush());
  }

  #flush(): void {
    this.#isScheduled = false;
    if (this.#told.size === 0) return;
    const before = this.store.getState().conversations;
    const conversations = { ...before };
    const now = Date.now();
    for (const [sessionId, told] of this.#told) {
      conversations[sessionId] = reduce(before[sessionId] ?? EMPTY, told, now);
    }
    this.#told.clear();
    this.store.setState({ conversations });
  }
}
