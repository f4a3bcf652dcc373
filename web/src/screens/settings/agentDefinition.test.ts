import { expect, test } from "vitest";
import { fieldsOf, withFields } from "./agentDefinition";

const DEFINITION = `# Our writer
trust: guided
max_turns: 50 # enough
tool_permissions:
  read: {allowed: true}
  write: {allowed: true, paths: [docs/**]}
  deploy: {allowed: true}
`;

function changed(definition: string, fields: Parameters<typeof withFields>[2]): string {
  const before = fieldsOf(definition);
  if (before === null) throw new Error("The form cannot show it.");
  return withFields(definition, before, fields);
}

test("a definition opens as the fields of the form", () => {
  const fields = fieldsOf(DEFINITION);
  expect(fields).toMatchObject({ trust: "guided", paths: "docs/**", otherTools: ["deploy"], provider: "" });
  expect([...(fields?.capabilities ?? [])]).toEqual(["read", "write"]);
});

test("a change of the form keeps comments, other keys and other tools", () => {
  const after = changed(DEFINITION, { trust: "review", provider: "anthropic", model: "claude" });
  expect(after).toContain("# Our writer");
  expect(after).toContain("max_turns: 50 # enough");
  expect(after).toContain("deploy: {");
  expect(fieldsOf(after)).toMatchObject({ trust: "review", provider: "anthropic", model: "claude" });
});

test("capabilities are added and removed with all their tools, paths and hosts", () => {
  const after = changed(DEFINITION, { capabilities: new Set(["read", "commands"]), hosts: "pypi.org, example.com" });
  const fields = fieldsOf(after);
  expect(after).not.toContain("write:");
  expect(fields?.hosts).toBe("pypi.org, example.com");
  expect([...(fields?.capabilities ?? [])]).toEqual(["read", "commands"]);
});

test("a budget is written and removed without a trace", () => {
  const limited = changed("trust: review\n", { dailyCost: "5" });
  expect(fieldsOf(limited)?.dailyCost).toBe("5");
  expect(changed(limited, { dailyCost: "" })).not.toContain("budgets");
});

test("an empty definition becomes one", () => {
  expect(fieldsOf(changed("", { trust: "review" }))?.trust).toBe("review");
});

test.each(["phases: [{name: design, tool_permissions: {}}]", "trust: reckless", "a: [b", "- a list"])(
  "%s is for the YAML view only",
  (definition) => expect(fieldsOf(definition)).toBeNull(),
);
