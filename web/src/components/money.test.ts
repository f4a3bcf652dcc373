import { describe, expect, it } from "vitest";
import { cost, dollars } from "./money";

describe("money", () => {
  it("shows cents, and more digits of small amounts", () => {
    expect([0, 0.0123, 0.5, 0.4587, 12.345, 0.00001].map(dollars)).toEqual([
      "$0.00",
      "$0.0123",
      "$0.50",
      "$0.46",
      "$12.35",
      "< $0.0001",
    ]);
  });

  it("says that a price is unknown instead of zero", () => {
    expect(cost(0, 0)).toBe("$0.00");
    expect(cost(0, 2)).toBe("unknown price");
    expect(cost(1.5, 2)).toBe("$1.50 + unknown price");
  });
});
