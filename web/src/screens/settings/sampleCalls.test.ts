import { expect, test } from "vitest";
import { exampleOf, sampleCalls } from "./sampleCalls";

const labels = (paths: string, hosts: string) => sampleCalls({ paths, hosts }).map(({ label }) => label);

test("an example is a path that the glob matches", () => {
  expect(["docs/**", "src/**/*.py", "/a.md", "*.{js,ts}", "**"].map(exampleOf)).toEqual([
    "/docs/example.md",
    "/src/some/example.py",
    "/a.md",
    "/example.js",
    "/example.md",
  ]);
});

test("paths and hosts are tried inside and outside of what is named", () => {
  expect(labels("docs/**, !docs/secret", "pypi.org *.example.com")).toEqual([
    "Read /README.md",
    "Read /.env, a protected name",
    "Write /docs/example.md",
    "Write /elsewhere/example.txt",
    "Delete /docs/example.md",
    "Run make test",
    "Run a command that contacts pypi.org",
    "Run a command that contacts www.example.com",
    "Run a command that contacts example.org",
    "Read a web page",
  ]);
  expect(labels("", "")).not.toContain("Write /elsewhere/example.txt");
});
