/** The WebSocket of a workspace: reconnects, resumes after the last sequence number, and feeds the store. */
import { createStore } from "zustand/vanilla";
import { ApiError, api } from "../api/client";
import type { Activity } from "./activity";
import { type Conversation, EMPTY } from "./conversation";
import type { Payload, ServerMessage } from "./messages";
import { reduce } from "./reduce";

export type Status = "connecting" | "live" | "offline";

export interface LiveState {
  status: Status;
  conversations: Readonly<Record<string, Conversation>>;
}

const MIN_BACKOFF = 300;
const MAX_BACKOFF = 10_000;
/** The most messages that are applied in one task, so that a long replay does not block the page. */
const BATCH = 200;

interface PendingRequest {
  resolve: (payload: Payload) => void;
  reject: (error: Error) => void;
}

export class Live {
  readonly store = createStore<LiveState>(() => ({ status: "connecting", conversations: {} }));
  readonly #workspaceId: string;
  #socket: WebSocket | null = null;
  #subscribers = new Map<string, number>();
  #requests = new Map<number, PendingRequest>();
  #number = 0;
  #backoff = MIN_BACKOFF;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #isClosed = false;
  /** Messages received since the last flush into the store. */
  #inbox = new Map<string, ServerMessage[]>();
  #isScheduled = false;
  /** Conversations of which the first replay has not ended. Each of its parts would be rendered for nothing. */
  #replays = new Map<string, Conversation>();
  #listeners = new Set<(message: ServerMessage) => void>();
  readonly #onActivity: (activity: Activity) => void;
  readonly #onWatching: () => void;

  /**
   * `onWatching` is called after each connection, once no later activity is missed; what changed before it is not
   * announced.
   */
  constructor(workspaceId: string, onActivity: (activity: Activity) => void, onWatching: () => void) {
    this.#workspaceId = workspaceId;
    this.#onActivity = onActivity;
    this.#onWatching = onWatching;
    this.#connect();
    window.addEventListener("online", this.retry);
  }

  /** Connects now, instead of after the pause that grows with every failure. */
  retry = (): void => {
    if (this.#isClosed || this.#socket?.readyState !== WebSocket.CLOSED) return;
    clearTimeout(this.#timer);
    this.#backoff = MIN_BACKOFF;
    void this.#reconnect();
  };

  /** Subscribes to the events of a session. Returns a function that unsubscribes. */
  subscribe(sessionId: string): () => void {
    const count = this.#subscribers.get(sessionId) ?? 0;
    this.#subscribers.set(sessionId, count + 1);
    if (count === 0) this.#resume(sessionId);
    return () => {
      const left = (this.#subscribers.get(sessionId) ?? 1) - 1;
      if (left > 0) {
        this.#subscribers.set(sessionId, left);
        return;
      }
      this.#subscribers.delete(sessionId);
      if (this.#isOpen()) this.#send("chat:unsubscribe", { conversationId: sessionId });
    };
  }

  /** Calls the listener for every event (not deltas) of the subscribed sessions. */
  listen(listener: (message: ServerMessage) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Sends a request and resolves with the response. Rejects with the server's error. */
  request(type: string, payload: Payload): Promise<Payload> {
    if (!this.#isOpen()) {
      return Promise.reject(new Error("The server is unreachable. Try again in a moment."));
    }
    const id = this.#send(type, payload);
    return new Promise((resolve, reject) => this.#requests.set(id, { resolve, reject }));
  }

  close(): void {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    window.removeEventListener("online", this.retry);
    this.#socket?.close();
  }

  #isOpen(): boolean {
    return this.#socket?.readyState === WebSocket.OPEN;
  }

  #send(type: string, payload: Payload): number {
    const id = ++this.#number;
    this.#socket?.send(JSON.stringify({ type, payload, id }));
    return id;
  }

  #connect(): void {
    const address = `/api/v1/workspaces/${this.#workspaceId}/ws`;
    const socket = new WebSocket(address, "toolcrib.chat");
    this.#socket = socket;
    socket.onopen = () => {
      this.#backoff = MIN_BACKOFF;
      this.store.setState({ status: "live" });
      for (const sessionId of this.#subscribers.keys()) this.#resume(sessionId);
      void this.#watch();
    };
    socket.onmessage = (frame) => this.#receive(JSON.parse(frame.data) as ServerMessage);
    socket.onclose = () => this.#disconnected();
  }

  async #watch(): Promise<void> {
    try {
      await this.request("chat:watch", {});
      this.#onWatching();
    } catch {
      // The connection was lost again; the next one watches.
    }
  }

  #disconnected(): void {
    for (const request of this.#requests.values())
      request.reject(new Error("The connection was lost before the server responded. Try again."));
    this.#requests.clear();
    if (this.#isClosed) return;
    this.store.setState({ status: "offline" });
    this.#timer = setTimeout(() => void this.#reconnect(), this.#backoff);
    this.#backoff = Math.min(this.#backoff * 2, MAX_BACKOFF);
  }

  /** A browser hides why a WebSocket failed. An API request refreshes the login, or shows that it has expired. */
  async #reconnect(): Promise<void> {
    try {
      const { response } = await api.GET("/api/v1/auth/me");
      if (response.status === 401) return;
    } catch (error) {
      if (error instanceof ApiError) throw error;
      // The server is still unreachable.
    }
    if (!this.#isClosed && this.#socket?.readyState === WebSocket.CLOSED) this.#connect();
  }

  #resume(sessionId: string): void {
    if (!this.#isOpen()) return;
    while (this.#inbox.has(sessionId)) this.#flush();
    this.#send("chat:resume", { conversationId: sessionId, after: this.#conversation(sessionId).seq });
  }

  #receive(message: ServerMessage): void {
    if (message.id !== undefined) this.#settle(message);
    if (message.type === "chat:activity") this.#onActivity(message.payload as Activity);
    const sessionId = message.payload.conversationId;
    if (message.type === "chat:ok" || typeof sessionId !== "string") return;
    // An error without a sequence number is a response to a request, not part of the conversation.
    if (message.type === "chat:error" && message.seq === undefined) return;
    const waiting = this.#inbox.get(sessionId);
    if (waiting) waiting.push(message);
    else this.#inbox.set(sessionId, [message]);
    if (message.seq !== undefined) for (const listener of this.#listeners) listener(message);
    this.#schedule();
  }

  #settle({ id, type, payload }: ServerMessage): void {
    const request = this.#requests.get(Number(id));
    this.#requests.delete(Number(id));
    if (type === "chat:error") request?.reject(new ApiError(0, payload.code, payload.message, payload.fields ?? {}));
    else request?.resolve(payload);
  }

  /** Applies received messages in batches: once per frame, or by a timer while the page is hidden. */
  #schedule(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    if (document.hidden) setTimeout(() => this.#flush(), 100);
    else requestAnimationFrame(() => this.#flush());
  }

  #flush(): void {
    const shown: Record<string, Conversation> = {};
    const now = Date.now();
    for (const [sessionId, messages] of this.#inbox) {
      const after = reduce(this.#conversation(sessionId), messages.splice(0, BATCH), now);
      if (messages.length === 0) this.#inbox.delete(sessionId);
      if (after.isLoaded) {
        this.#replays.delete(sessionId);
        shown[sessionId] = after;
      } else this.#replays.set(sessionId, after);
    }
    if (Object.keys(shown).length > 0)
      this.store.setState(({ conversations }) => ({ conversations: { ...conversations, ...shown } }));
    this.#isScheduled = this.#inbox.size > 0;
    if (this.#isScheduled) setTimeout(() => this.#flush());
  }

  #conversation(sessionId: string): Conversation {
    return this.#replays.get(sessionId) ?? this.store.getState().conversations[sessionId] ?? EMPTY;
  }
}
