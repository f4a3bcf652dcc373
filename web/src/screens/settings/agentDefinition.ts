/** An agent's definition as the fields of a form. The YAML stays the source: comments and other keys are kept. */
import { type Document, parseDocument } from "yaml";
import type { Schema } from "../../api/client";

export interface Capability {
  name: string;
  label: string;
  about: string;
  tools: readonly string[];
}

/** What people allow together. The first tool decides whether a definition has it. */
export const CAPABILITIES: readonly Capability[] = [
  {
    name: "read",
    label: "Read and search files",
    about: "Never needs approval, except for protected names.",
    tools: ["read", "ls", "grep", "glob", "find", "file_info"],
  },
  {
    name: "write",
    label: "Change files",
    about: "Every change is a version, and can be undone.",
    tools: ["write", "edit", "mkdir", "mv", "rm", "touch"],
  },
  {
    name: "commands",
    label: "Run commands",
    about: "In a sandbox, without network unless you name hosts.",
    tools: ["bash"],
  },
  {
    name: "people",
    label: "Ask questions and propose plans",
    about: "The agent asks instead of guessing.",
    tools: ["ask_user", "plan_write", "plan_read", "exit_plan_mode"],
  },
  { name: "web", label: "Search and read the web", about: "Public pages only.", tools: ["web_search", "web_fetch"] },
];

export interface AgentFields {
  provider: string;
  model: string;
  trust: Schema["TrustLevel"];
  prompt: string;
  capabilities: ReadonlySet<string>;
  /** Globs of the files that it may change, separated by commas. Empty: all. */
  paths: string;
  hosts: string;
  /** US dollars per day, as typed. */
  dailyCost: string;
  /** Allowed tools that belong to no capability. */
  otherTools: readonly string[];
}

const TRUST: readonly string[] = ["supervised", "guided", "review", "autonomous"] satisfies Schema["TrustLevel"][];

/** Reads the fields of a definition; null if only the YAML can show it. */
export function fieldsOf(definition: string): AgentFields | null {
  const document = parseDocument(definition);
  const rules: unknown = document.errors.length > 0 ? undefined : (document.toJS() ?? {});
  if (!isMap(rules) || rules.phases !== undefined) return null;
  const permissions = isMap(rules.tool_permissions) ? rules.tool_permissions : {};
  const allowed = Object.keys(permissions).filter((tool) => entry(permissions, tool).allowed === true);
  const has = ({ tools }: Capability) => allowed.includes(tools[0] ?? "");
  const known = CAPABILITIES.flatMap(({ tools }) => tools);
  const trust = text(rules.trust) || "guided";
  if (!TRUST.includes(trust)) return null;
  const day = isMap(rules.budgets) && isMap(rules.budgets.day) ? rules.budgets.day : {};
  return {
    provider: text(rules.provider),
    model: text(rules.model),
    trust: trust as Schema["TrustLevel"],
    prompt: text(rules.prompt),
    capabilities: new Set(CAPABILITIES.filter(has).map(({ name }) => name)),
    paths: listed(entry(permissions, "write").paths),
    hosts: listed(entry(permissions, "bash").hosts),
    dailyCost: text(day.max_cost),
    otherTools: allowed.filter((tool) => !known.includes(tool)),
  };
}

/** Writes the fields that changed into the definition. */
export function withFields(definition: string, before: AgentFields, changed: Partial<AgentFields>): string {
  const document = parseDocument(definition);
  const after = { ...before, ...changed };
  if (document.contents === null) document.contents = document.createNode({}) as unknown as typeof document.contents;
  for (const key of ["provider", "model", "trust", "prompt"] as const)
    if (changed[key] !== undefined) set(document, [key], after[key].trim() === "" ? undefined : after[key]);
  if (changed.dailyCost !== undefined) {
    const cost = Number(after.dailyCost);
    set(
      document,
      ["budgets", "day", "max_cost"],
      after.dailyCost.trim() === "" || Number.isNaN(cost) ? undefined : cost,
    );
    if (after.dailyCost.trim() === "") prune(document, ["budgets", "day"], ["budgets"]);
  }
  if (changed.capabilities !== undefined || changed.paths !== undefined || changed.hosts !== undefined)
    for (const capability of CAPABILITIES) allow(document, capability, after, before);
  return document.toString({ lineWidth: 0 });
}

function allow(document: Document, { name, tools }: Capability, after: AgentFields, before: AgentFields): void {
  const isOn = after.capabilities.has(name);
  if (isOn !== before.capabilities.has(name))
    for (const tool of tools) set(document, ["tool_permissions", tool], isOn ? { allowed: true } : undefined);
  if (!isOn) return;
  if (name === "write" && (after.paths !== before.paths || !before.capabilities.has(name)))
    for (const tool of tools) set(document, ["tool_permissions", tool, "paths"], globs(after.paths));
  if (name === "commands" && (after.hosts !== before.hosts || !before.capabilities.has(name)))
    set(document, ["tool_permissions", "bash", "hosts"], globs(after.hosts));
}

function set(document: Document, path: readonly string[], value: unknown): void {
  if (value === undefined) {
    if (document.hasIn(path)) document.deleteIn(path);
    return;
  }
  document.setIn(path, document.createNode(value, { flow: typeof value === "object" }));
}

/** Removes maps that have become empty. */
function prune(document: Document, ...paths: string[][]): void {
  for (const path of paths) {
    const value: unknown = document.getIn(path);
    if (document.hasIn(path) && isEmpty(value)) document.deleteIn(path);
  }
}

function isEmpty(value: unknown): boolean {
  return typeof value === "object" && value !== null && "items" in value && (value.items as unknown[]).length === 0;
}

function globs(names: string): string[] | undefined {
  const found = names.split(/[,\s]+/).filter(Boolean);
  return found.length > 0 ? found : undefined;
}

function isMap(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function entry(permissions: Record<string, unknown>, tool: string): Record<string, unknown> {
  const found = permissions[tool];
  return isMap(found) ? found : {};
}

function text(value: unknown): string {
  return value === undefined || value === null ? "" : String(value);
}

function listed(names: unknown): string {
  return Array.isArray(names) ? names.join(", ") : "";
}
