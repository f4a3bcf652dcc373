import { afterEach, beforeEach, expect, test, vi } from "vitest";

vi.stubGlobal("navigator", {});
const { refresh, RefreshFailed } = await import("./loginRefresh");

beforeEach(() => {
  const stored = new Map<string, string>();
  vi.stubGlobal("localStorage", {
    getItem: (key: string) => stored.get(key) ?? null,
    setItem: (key: string, value: string) => stored.set(key, value),
  });
});
afterEach(() => vi.restoreAllMocks());

function respondWith(...statuses: number[]) {
  const responses = statuses.map((status) => ({ status, ok: status === 200 }));
  const fetch = vi.fn(async () => responses.shift());
  vi.stubGlobal("fetch", fetch);
  return fetch;
}

test("refresh retries when another tab has just used the cookie", async () => {
  const fetch = respondWith(409, 200);
  expect(await refresh()).toBe(true);
  expect(fetch).toHaveBeenCalledTimes(2);
});

test("refresh sends nothing when another tab has renewed the login since the request failed", async () => {
  respondWith(200);
  const failedAt = Date.now() - 1_000;
  expect(await refresh(failedAt)).toBe(true);
  const fetch = respondWith();
  expect(await refresh(failedAt)).toBe(true);
  expect(fetch).toHaveBeenCalledTimes(0);
});

test("refresh does not retry an expired login", async () => {
  const fetch = respondWith(401);
  expect(await refresh()).toBe(false);
  expect(fetch).toHaveBeenCalledTimes(1);
});

test("a server that cannot answer now does not end the login", async () => {
  respondWith(503);
  await expect(refresh()).rejects.toThrow(RefreshFailed);
});

test("concurrent callers share one request, and tabs take turns", async () => {
  const fetch = respondWith(200);
  const request = vi.fn((_: string, work: () => Promise<boolean>) => work());
  vi.stubGlobal("navigator", { locks: { request } });
  expect(await Promise.all([refresh(), refresh()])).toEqual([true, true]);
  expect(fetch).toHaveBeenCalledTimes(1);
  expect(request).toHaveBeenCalledTimes(1);
});
