import { expect, test, vi } from "vitest";

vi.stubGlobal("location", { origin: "http://crib.test" });
vi.stubGlobal("BroadcastChannel", class {});
const { ApiError } = await import("../api/client");
const { errorText } = await import("./errorText");

test.each([
  [new TypeError("Failed to fetch"), true, "The server is unreachable. Try again in a moment."],
  [new TypeError("NetworkError when attempting to fetch resource."), false, "You are offline."],
  [new ApiError(500, "INTERNAL_ERROR", "Internal server error"), true, "Something went wrong in the server."],
  [new ApiError(409, "CONFLICT", "The file has changed."), true, "The file has changed."],
  [new TypeError("x is not a function"), true, "x is not a function"],
])("%s is told as a person understands it", (error, onLine, text) => {
  vi.stubGlobal("navigator", { onLine });
  expect(errorText(error)).toContain(text);
});
