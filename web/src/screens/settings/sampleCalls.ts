/** Calls that show what the settings of an agent mean, for the paths and hosts that they name. Pure. */
import type { AgentFields } from "./agentDefinition";

export interface SampleCall {
  label: string;
  tool: string;
  args: Record<string, unknown>;
}

const OUTSIDE = "/elsewhere/example.txt";

export function sampleCalls({ paths, hosts }: Pick<AgentFields, "paths" | "hosts">): SampleCall[] {
  const globs = namesIn(paths).filter((glob) => !glob.startsWith("!"));
  const inside = globs.length > 0 ? globs.slice(0, 3).map(exampleOf) : ["/docs/example.md"];
  const named = namesIn(hosts)
    .slice(0, 2)
    .map((host) => host.replace(/^\*\./, "www."));
  const write = (path: string): SampleCall => ({
    label: `Write ${path}`,
    tool: "write",
    args: { path, content: "Example\n", overwrite: true },
  });
  const contact = (host: string): SampleCall => ({
    label: `Run a command that contacts ${host}`,
    tool: "bash",
    args: { command: `curl https://${host}/`, hosts: [host] },
  });
  return [
    { label: "Read /README.md", tool: "read", args: { path: "/README.md" } },
    { label: "Read /.env, a protected name", tool: "read", args: { path: "/.env" } },
    ...inside.map(write),
    ...(globs.length > 0 ? [write(OUTSIDE)] : []),
    { label: `Delete ${inside[0]}`, tool: "rm", args: { path: inside[0] } },
    { label: "Run make test", tool: "bash", args: { command: "make test" } },
    ...named.map(contact),
    ...(named.includes("example.org") ? [] : [contact("example.org")]),
    { label: "Read a web page", tool: "web_fetch", args: { url: "https://example.org/" } },
  ];
}

/** A path that a glob matches. */
export function exampleOf(glob: string): string {
  const path = glob
    .replace(/^\//, "")
    .replace(/\*\*\//g, "some/")
    .replace(/\*\*$/, "example.md")
    .replace(/\{([^,}]*)[^}]*\}/g, "$1")
    .replace(/\*/g, "example")
    .replace(/\?/g, "x");
  return `/${path}`;
}

function namesIn(text: string): string[] {
  return text.split(/[,\s]+/).filter(Boolean);
}
