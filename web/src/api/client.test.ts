import { afterEach, expect, test, vi } from "vitest";

vi.stubGlobal("location", { origin: "http://crib.test" });
vi.stubGlobal("navigator", {});
const { refresh } = await import("./client");

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

test("refresh does not retry an expired login", async () => {
  const fetch = respondWith(401);
  expect(await refresh()).toBe(false);
  expect(fetch).toHaveBeenCalledTimes(1);
});

test("concurrent callers share one request, and tabs take turns", async () => {
  const fetch = respondWith(200);
  const request = vi.fn((_: string, work: () => Promise<boolean>) => work());
  vi.stubGlobal("navigator", { locks: { request } });
  expect(await Promise.all([refresh(), refresh()])).toEqual([true, true]);
  expect(fetch).toHaveBeenCalledTimes(1);
  expect(request).toHaveBeenCalledTimes(1);
});
