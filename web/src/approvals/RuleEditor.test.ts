import { expect, test } from "vitest";
import { shownAccess } from "./access";
import { argumentsIn, summaryOf } from "./RuleEditor";

test("a rule is summarized on one line, without deceptive characters", () => {
  expect(summaryOf({ tools: ["write", "edit"], paths: ["@project/src/**"] })).toBe("write, edit: @project/src/**");
  expect(summaryOf({ tools: ["bash"], commands: ["git diff *", "a\nb"], hosts: ["x.org"] })).toBe(
    "bash: git diff * ; a\\nb ; x.org",
  );
  expect(summaryOf({ tools: ["bash"], commands: ["ls \u202e*"] })).toBe("bash: ls \\u202e*");
  expect(summaryOf({ tools: ["rm"], paths: null })).toBe("rm: anything");
});

test("people do not read the entry that says which MCP server it is", () => {
  expect(shownAccess(["server:0a1b", "secret:TOKEN", "workspace:read"])).toEqual(["secret:TOKEN", "workspace:read"]);
  expect(shownAccess(null)).toEqual([]);
  expect(summaryOf({ tools: ["mcp:a/b"], access: ["server:0a1b"] })).toBe("mcp:a/b: anything");
});

test("arguments are parsed by line", () => {
  expect(argumentsIn("repo=acme/*\n\ntitle = a=b\nnothing")).toEqual({ repo: "acme/*", title: " a=b" });
});
