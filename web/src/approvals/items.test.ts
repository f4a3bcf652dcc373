import { expect, test } from "vitest";
import type { Item, JsonSchema } from "../events/messages";
import { controlOf, initialAnswer, isPlanReview, optionsOf, planNamed } from "./items";

function item(schema: JsonSchema, more: Partial<Item> = {}): Item {
  return { name: "x", question: "?", schema, ...more };
}

test.each<[JsonSchema, string]>([
  [{ type: "string", enum: ["a"] }, "choice"],
  [{ type: "array", items: { type: "string", enum: ["a"] } }, "choices"],
  [{ type: "boolean" }, "yesno"],
  [{ type: "integer" }, "number"],
  [{ type: ["number", "null"] }, "number"],
  [{ type: "string" }, "text"],
  [{}, "text"],
])("the control for %j is %s", (schema, control) => {
  expect(controlOf(item(schema))).toBe(control);
});

test("buttons take precedence", () => {
  expect(controlOf(item({ type: "string", enum: ["a"] }, { buttons: [{ label: "A", value: "a" }] }))).toBe("buttons");
});

test.each<[JsonSchema, string[]]>([
  [{ type: "string", enum: ["a", "b"] }, ["a", "b"]],
  [{ type: "array", items: { type: "string", enum: ["a"] } }, ["a"]],
  [{ type: "boolean" }, ["Yes", "No"]],
  [{ type: "string" }, []],
])("who only reads sees the options of %j", (schema, options) => {
  expect(optionsOf(item(schema))).toEqual(options);
});

test("the initial answer is the schema's default", () => {
  expect([initialAnswer(item({ type: "integer", default: 3 })), initialAnswer(item({ type: "string" }))]).toEqual([
    3,
    undefined,
  ]);
});

test("a plan review has the buttons Accept and Reject", () => {
  const buttons = ["Accept", "Reject"].map((value) => ({ label: value, value }));
  expect(isPlanReview([item({ type: "string" }, { buttons })])).toBe(true);
  expect(isPlanReview([item({ type: "string" }, { buttons: buttons.slice(1) })])).toBe(false);
});

test("the plan is the named one, or else the last one", () => {
  expect(planNamed([item({}, { question: "Build /plans/a-b-c.plan now?" })], "/plans/x.plan")).toBe(
    "/plans/a-b-c.plan",
  );
  expect(planNamed([item({})], "/plans/x.plan")).toBe("/plans/x.plan");
});
