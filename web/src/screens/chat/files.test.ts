import { describe, expect, test } from "vitest";
import { dataUrl, flawOf } from "./files";

describe("files of a message", () => {
  test("images and PDFs up to their limits are accepted", () => {
    expect(flawOf({ name: "a.png", type: "image/png", size: 5_000_000 })).toBeNull();
    expect(flawOf({ name: "a.pdf", type: "application/pdf", size: 10_000_000 })).toBeNull();
  });

  test("others are refused with a reason", () => {
    expect(flawOf({ name: "a.svg", type: "image/svg+xml", size: 1 })).toContain("is not an image");
    expect(flawOf({ name: "a.png", type: "image/png", size: 5_000_001 })).toContain("limit is 5 MB");
  });

  test("content becomes a URL that a page can show", () => {
    expect(dataUrl("image/png", "AAAA")).toBe("data:image/png;base64,AAAA");
  });
});
