/** What a finished call shows, chosen by what it returned rather than by its name where that is possible. Pure. */
import { asText, isBinary } from "../../../api/content";
import { type Call, isPending } from "../../../events/conversation";

export interface FoundFile {
  path: string;
  lines: readonly { number: number; text: string }[];
}

export interface ListedPath {
  path: string;
  isFolder: boolean;
  size: number | null;
}

export interface WebResult {
  title: string;
  url: string;
  snippet: string;
}

export type CallView =
  | { kind: "terminal"; command: string; output: string; exitCode: number | null }
  | { kind: "matches"; files: readonly FoundFile[]; count: number; hint: string | null }
  | { kind: "paths"; paths: readonly ListedPath[]; hint: string | null }
  | { kind: "table"; columns: readonly string[]; rows: readonly (readonly string[])[]; total: number }
  | { kind: "csv"; path: string; text: string; total: number | null }
  | { kind: "web-results"; results: readonly WebResult[] }
  | { kind: "page"; url: string; title: string; text: string }
  | { kind: "file"; path: string; text: string; firstLine: number; total: number | null }
  | { kind: "images"; name: string }
  | { kind: "changes" }
  | { kind: "fields"; value: unknown }
  | { kind: "text"; text: string }
  | { kind: "error"; text: string };

const CHANGES = /^(write|edit|mv|rm|touch|mkdir|plan_write|plan_edit|file_write|file_edit|file_restore|undo)$/;
const COMMANDS = /^(bash|job_|process)/;
const IMAGE = /\.(png|jpe?g|gif|webp)$/i;
const MOST_ROWS = 200;
const MOST_COLUMNS = 30;

/** Returns how to show a call; null while there is nothing but its arguments. */
export function viewOf(call: Call): CallView | null {
  const input = (typeof call.input === "object" && call.input !== null ? call.input : {}) as Record<string, unknown>;
  if (COMMANDS.test(call.name) && typeof input.command === "string" && !isPending(call.pause)) {
    const exitCode = call.metadata.exitCode;
    return {
      kind: "terminal",
      command: input.command,
      output: call.result ?? call.output,
      exitCode: typeof exitCode === "number" ? exitCode : null,
    };
  }
  if (call.result === null) return call.output === "" ? null : { kind: "text", text: call.output };
  if (call.status !== "success") return { kind: "error", text: call.result };
  if (CHANGES.test(call.name)) return { kind: "changes" };
  if (call.name === "web_search") return webResults(call.result);
  if (call.name === "web_fetch") return page(call);
  return ofValue(parsed(call.result), call);
}

function ofValue(value: unknown, call: Call): CallView {
  const text = call.result ?? "";
  if (typeof value !== "object" || value === null) return { kind: "text", text };
  const result = value as Record<string, unknown>;
  const hint = typeof result.hint === "string" ? result.hint : null;
  if (Array.isArray(result.matches)) return found(result.matches, hint);
  if (Array.isArray(result.entries)) return { kind: "paths", paths: result.entries.flatMap(listed), hint };
  if (Array.isArray(result.media) && result.media.length > 0) return { kind: "images", name: call.name };
  if (typeof result.path === "string" && "content" in result) return file(result.path, result);
  if (typeof result.content === "string") return { kind: "text", text: result.content };
  return tableOf(value) ?? { kind: "fields", value };
}

function found(matches: readonly unknown[], hint: string | null): CallView {
  const first = matches[0] as Record<string, unknown> | undefined;
  if (first === undefined || typeof first.line_number !== "number")
    return { kind: "paths", paths: matches.flatMap(listed), hint };
  const files = new Map<string, { number: number; text: string }[]>();
  for (const { path, line_number, line_text } of matches as Record<string, unknown>[]) {
    const lines = files.get(String(path)) ?? [];
    lines.push({ number: Number(line_number), text: String(line_text) });
    files.set(String(path), lines);
  }
  return {
    kind: "matches",
    files: [...files].map(([path, lines]) => ({ path, lines })),
    count: matches.length,
    hint,
  };
}

function listed(entry: unknown): ListedPath[] {
  const { path, file_type, size } = (entry ?? {}) as Record<string, unknown>;
  if (typeof path !== "string") return [];
  const isFolder = String(file_type).toLowerCase() === "folder";
  return [{ path, isFolder, size: typeof size === "number" ? size : null }];
}

function file(path: string, { content, offset, total_lines }: Record<string, unknown>): CallView {
  if (IMAGE.test(path) && isBinary(content)) return { kind: "images", name: path };
  const total = typeof total_lines === "number" ? total_lines : null;
  const text = asText(content);
  if (text === null) return { kind: "fields", value: { path, content: "binary" } };
  if (/\.[ct]sv$/i.test(path)) return { kind: "csv", path, text, total };
  const table = typeof content === "object" ? tableOf(content) : null;
  return table ?? { kind: "file", path, text, firstLine: typeof offset === "number" ? offset + 1 : 1, total };
}

/** Returns a list of flat objects as a table. */
export function tableOf(value: unknown): CallView | null {
  if (!Array.isArray(value) || value.length < 2 || !value.every(isFlat)) return null;
  const columns = [...new Set(value.slice(0, MOST_ROWS).flatMap((row) => Object.keys(row)))];
  if (columns.length === 0 || columns.length > MOST_COLUMNS) return null;
  const rows = value.slice(0, MOST_ROWS).map((row) => columns.map((name) => cellOf(row[name])));
  return { kind: "table", columns, rows, total: value.length };
}

function isFlat(row: unknown): row is Record<string, unknown> {
  if (typeof row !== "object" || row === null || Array.isArray(row)) return false;
  return Object.values(row).every((cell) => typeof cell !== "object" || cell === null);
}

function cellOf(cell: unknown): string {
  return cell === null || cell === undefined ? "" : String(cell);
}

const NUMBERED = /^\d+\. (?<title>[^\n]*)\n {3}(?<url>https?:\/\/\S+)(?:\n {3}(?<snippet>[^\n]*))?/;

function webResults(text: string): CallView {
  const results = text
    .split("\n\n")
    .map((block) => NUMBERED.exec(block)?.groups)
    .filter((groups) => groups !== undefined)
    .map(({ title, url, snippet }) => ({ title: title ?? "", url: url ?? "", snippet: snippet ?? "" }));
  return results.length > 0 ? { kind: "web-results", results } : { kind: "text", text };
}

function page({ result, metadata }: Call): CallView {
  const text = (result ?? "")
    .split("\n")
    .filter((line) => !/^\[(From .* untrusted content|end [0-9a-f]{8}\])/.test(line));
  const { url, title } = metadata;
  if (typeof url !== "string") return { kind: "text", text: result ?? "" };
  return { kind: "page", url, title: typeof title === "string" && title !== "" ? title : url, text: text.join("\n") };
}

function parsed(text: string): unknown {
  if (!/^\s*[[{]/.test(text)) return null;
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** A few words for the header of a collapsed call, such as `12 matches`. */
export function gistOf(view: CallView | null): string {
  switch (view?.kind) {
    case "terminal":
      return view.exitCode === null || view.exitCode === 0 ? "" : `exit ${view.exitCode}`;
    case "matches":
      return `${counted(view.count, "match", "matches")} in ${counted(view.files.length, "file")}`;
    case "paths":
      return counted(view.paths.length, "entry", "entries");
    case "table":
      return counted(view.total, "row");
    case "web-results":
      return counted(view.results.length, "result");
    case "file":
    case "csv":
      return view.total === null ? "" : counted(view.total, "line");
    default:
      return "";
  }
}

export function counted(count: number, one: string, many = `${one}s`): string {
  return `${count.toLocaleString()} ${count === 1 ? one : many}`;
}
