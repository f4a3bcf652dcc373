import { describe, expect, test } from "vitest";
import { dataUrl, flawOf, numbered, textOf, withPaths } from "./files";

describe("files of a message", () => {
  test("images and PDFs up to their limits are accepted", () => {
    expect(flawOf({ name: "a.png", type: "image/png", size: 5_000_000 })).toBeNull();
    expect(flawOf({ name: "a.pdf", type: "application/pdf", size: 10_000_000 })).toBeNull();
  });

  test("files of any kind are accepted, and only text is taken for text", () => {
    expect(flawOf({ name: "a.csv", type: "text/csv", size: 10_000_000 })).toBeNull();
    expect(textOf(new TextEncoder().encode("\uFEFFa;ö\r\n").buffer)).toBe("\uFEFFa;ö\r\n");
    for (const bytes of [
      [0xff, 0xfe],
      [80, 75, 0],
    ])
      expect(textOf(new Uint8Array(bytes).buffer)).toBeNull();
  });

  test("the message names the files in the workspace, which have names of their own", () => {
    expect(["data.csv", "Makefile", ".env"].map((name) => numbered(name, 2))).toEqual([
      "data-2.csv",
      "Makefile-2",
      ".env-2",
    ]);
    expect(withPaths("Look.", [])).toBe("Look.");
    expect(withPaths("Look.", ["/uploads/a", "/uploads/b"])).toBe(
      "Look.\n\nFiles in the workspace: /uploads/a, /uploads/b",
    );
  });

  test("large files are refused with a reason", () => {
    expect(flawOf({ name: "a.csv", type: "text/csv", size: 10_000_001 })).toContain("limit is 10 MB");
    expect(flawOf({ name: "a.png", type: "image/png", size: 5_000_001 })).toContain("limit is 5 MB");
  });

  test("content becomes a URL that a page can show", () => {
    expect(dataUrl("image/png", "AAAA")).toBe("data:image/png;base64,AAAA");
  });
});
