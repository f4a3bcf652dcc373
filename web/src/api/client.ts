/** The typed client of the HTTP API. HTTP-only cookies hold the login. */
import createClient from "openapi-fetch";
import type { components, paths } from "./schema";

export type Schema = components["schemas"];

/** An error response. `code` is stable; `message` is for people. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly fields: Record<string, string> = {},
  ) {
    super(message);
  }
}

const listeners = new Set<() => void>();

/** Calls the listener when the login has expired. */
export function onLoggedOut(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

const MAX_PAUSE = 2_000;

let refreshing: Promise<boolean> | null = null;

/** Exchanges the refresh cookie for new cookies. Returns whether it succeeded. Concurrent callers share one request. */
export function refresh(): Promise<boolean> {
  refreshing ??= withTabLock(spendRefreshCookie).finally(() => {
    refreshing = null;
  });
  return refreshing;
}

/** Tabs share the single-use cookie. Without the Web Locks API (insecure pages), the server responds with 409. */
async function withTabLock(work: () => Promise<boolean>): Promise<boolean> {
  return navigator.locks ? await navigator.locks.request("toolcrib-refresh", work) : work();
}

async function spendRefreshCookie(): Promise<boolean> {
  for (let pause = 100; ; pause *= 2) {
    const response = await fetch("/api/v1/auth/refresh", { method: "POST" });
    // Another tab has just used it, and its response sets the next cookie.
    if (response.status !== 409 || pause > MAX_PAUSE) return response.ok;
    await new Promise((done) => setTimeout(done, pause));
  }
}

/** Sends a request, and repeats it once with a new access token if the old one has expired. */
async function fetchLoggedIn(request: Request): Promise<Response> {
  const again = request.clone();
  const response = await fetch(request);
  if (response.status !== 401 || isLogin(request.url)) return response;
  if (await refresh()) return fetch(again);
  for (const listener of listeners) listener();
  return response;
}

function isLogin(url: string): boolean {
  return /\/auth\/(login|link|register|refresh|logout)$/.test(new URL(url).pathname);
}

export const api = createClient<paths>({ baseUrl: location.origin, fetch: fetchLoggedIn });

interface ApiResult<T> {
  data?: T;
  error?: unknown;
  response: Response;
}

/** Returns the data of a response. Throws `ApiError` on an error response. */
export async function unwrap<T>(request: Promise<ApiResult<T>>): Promise<T> {
  const { data, error, response } = await request;
  if (response.ok) return data as T;
  throw errorOf(response.status, error);
}

function errorOf(status: number, body: unknown): ApiError {
  if (typeof body === "object" && body !== null && "error" in body) {
    const problem = body as { error?: unknown; code?: unknown; fields?: Record<string, string> | null };
    return new ApiError(status, String(problem.code), String(problem.error), problem.fields ?? {});
  }
  return new ApiError(status, "UNREADABLE", `The server returned status ${status} without an error message.`);
}
