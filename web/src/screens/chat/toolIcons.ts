/** The icon of a tool and the one-line summary of its input. */
import {
  Blocks,
  Bot,
  FilePen,
  FileText,
  FolderTree,
  Globe,
  History,
  type LucideIcon,
  MessageCircleQuestion,
  Map as PlanIcon,
  Search,
  SquareTerminal,
  Trash2,
} from "lucide-react";
import { escapedLine } from "../../components/shownText";

const ICONS: readonly [RegExp, LucideIcon][] = [
  [/^(bash|job_|process)/, SquareTerminal],
  [/^(write|edit|file_edit|file_write|touch|mkdir|mv)/, FilePen],
  [/^(rm|delete)/, Trash2],
  [/^(grep|glob|find|search)/, Search],
  [/^(ls|list_)/, FolderTree],
  [/^(plan_|exit_plan)/, PlanIcon],
  [/^ask_user/, MessageCircleQuestion],
  [/^run_agent/, Bot],
  [/^(web|http|fetch)/, Globe],
  [/^(undo|changes|file_version|file_restore|restore)/, History],
  [/^(read|cat|file_)/, FileText],
];

export function iconOf(tool: string): LucideIcon {
  return ICONS.find(([names]) => names.test(tool))?.[1] ?? Blocks;
}

const READ_ONLY =
  /^(read|cat|ls|list_|grep|glob|find|file_info|file_version|plan_(read|list)|ask_user|exit_plan|changes|web)/;

/** Whether a call of the tool can change files, so that undo makes sense. */
export function mayChangeFiles(tool: string): boolean {
  return !READ_ONLY.test(tool);
}

const SUMMARY_FIELDS = [
  "command",
  "path",
  "file_path",
  "pattern",
  "query",
  "source",
  "url",
  "name",
  "title",
  "task",
  "plan_file_path",
];

export function summaryOf(input: unknown): string {
  if (typeof input !== "object" || input === null) return "";
  const fields = input as Record<string, unknown>;
  const field = SUMMARY_FIELDS.find((name) => typeof fields[name] === "string");
  return field ? escapedLine(String(fields[field])) : "";
}

export function durationOf(milliseconds: number): string {
  if (milliseconds < 1_000) return `${milliseconds} ms`;
  if (milliseconds < 60_000) return `${(milliseconds / 1_000).toFixed(1)} s`;
  return `${Math.floor(milliseconds / 60_000)} min ${Math.round((milliseconds % 60_000) / 1_000)} s`;
}
