/** The typed client of the server's API. Who is logged in is known by cookies, which scripts cannot read. */
import createClient from "openapi-fetch";
import type { components, paths } from "./schema";

export type Schema = components["schemas"];

/** What the server said when it refused. `code` is stable; `message` is for people. */
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

/** Calls back when nobody is logged in any longer. */
export function onLoggedOut(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

let refreshing: Promise<boolean> | null = null;

/** Spends the refresh cookie for new ones; whether it worked. Those who ask meanwhile share the answer. */
export function refresh(): Promise<boolean> {
  refreshing ??= fetch("/api/v1/auth/refresh", { method: "POST" })
    .then((answer) => answer.ok)
    .finally(() => {
      refreshing = null;
    });
  return refreshing;
}

/** Asks, and if the access token has expired asks once more with a new one. */
async function fetchLoggedIn(request: Request): Promise<Response> {
  const again = request.clone();
  const answer = await fetch(request);
  if (answer.status !== 401 || isLogin(request.url)) return answer;
  if (await refresh()) return fetch(again);
  for (const tell of listeners) tell();
  return answer;
}

function isLogin(url: string): boolean {
  return /\/auth\/(login|link|register|refresh|logout)$/.test(new URL(url).pathname);
}

export const api = createClient<paths>({ baseUrl: location.origin, fetch: fetchLoggedIn });

interface Answered<T> {
  data?: T;
  error?: unknown;
  response: Response;
}

/** The data of an answer; `ApiError` if the server refused. */
export async function taken<T>(asked: Promise<Answered<T>>): Promise<T> {
  const { data, error, response } = await asked;
  if (response.ok) return data as T;
  throw errorOf(response.status, error);
}

function errorOf(status: number, body: unknown): ApiError {
  if (typeof body === "object" && body !== null && "error" in body) {
    const said = body as { error?: unknown; code?: unknown; fields?: Record<string, string> | null };
    return new ApiError(status, String(said.code), String(said.error), said.fields ?? {});
  }
  return new ApiError(status, "UNREADABLE", `The server answered ${status} and did not say why.`);
}
