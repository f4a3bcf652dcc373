/** The typed client of the HTTP API. HTTP-only cookies hold the login. */
import createClient from "openapi-fetch";
import { refresh } from "./loginRefresh";
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

/** Sends a request, and repeats it once with a new access token if the old one has expired. */
async function fetchLoggedIn(request: Request): Promise<Response> {
  const again = request.clone();
  const sentAt = Date.now();
  const response = await fetch(request);
  if (response.status !== 401 || isLogin(request.url)) return response;
  if (await refresh(sentAt)) return fetch(again);
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
