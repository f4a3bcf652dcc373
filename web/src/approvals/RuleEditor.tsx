/** The rule that an approval saves: a person chooses a suggestion, edits it, and sees all of it before it is saved. */

import { Plus, X } from "lucide-react";
import { useId, useState } from "react";
import { Button } from "../components/Button";
import { EXACT, ShownText } from "../components/Code";
import { INPUT } from "../components/Labelled";
import { escapedLine, shownLine } from "../components/shownText";
import type { Approval } from "../events/conversation";
import type { Rule } from "../events/messages";
import { isIdentity, shownAccess } from "./access";

interface Props {
  approval: Approval;
  scope: "session" | "always";
  busy: boolean;
  onConfirm: (rule: Rule) => void;
  onBack: () => void;
}

type ListField = "tools" | "paths" | "commands" | "hosts" | "access";

const HINTS: Record<ListField, string> = {
  tools: "The tools that the rule is for.",
  paths: "Globs, such as @project/src/**.",
  commands: "Exact commands, or the first words and *: git diff *",
  hosts: "What the call may contact, such as pypi.org.",
  access: "What the MCP server was given. What it is given later is not covered.",
};

export default function RuleEditor({ approval, scope, busy, onConfirm, onBack }: Props) {
  const suggestions = [approval.suggestedRule, ...approval.otherRules];
  const [rule, setRule] = useState<Rule>(approval.suggestedRule);
  const name = useId();
  const identity = (approval.suggestedRule.access ?? []).filter(isIdentity);
  const change = (part: Partial<Rule>) => setRule({ ...rule, ...part });
  return (
    <form
      className="space-y-3 rounded-md border border-line bg-sunken p-3"
      onSubmit={(event) => {
        event.preventDefault();
        onConfirm(rule);
      }}
    >
      <p>
        {scope === "session" ? "Until the session ends, " : "From now on, "}
        {approval.agent ?? "the agent"} can do this without approval:
      </p>
      {suggestions.length > 1 && (
        <fieldset className="space-y-1 text-sm">
          <legend className="mb-1 font-medium">Suggestions</legend>
          {suggestions.map((one) => (
            <label key={JSON.stringify(one)} className="flex items-baseline gap-2">
              <input
                type="radio"
                name={name}
                checked={JSON.stringify(one) === JSON.stringify(rule)}
                onChange={() => setRule(one)}
              />
              <code className="min-w-0 wrap-anywhere">{summaryOf(one)}</code>
            </label>
          ))}
        </fieldset>
      )}
      <fieldset className="space-y-2" aria-label="The rule">
        {fieldsOf(approval).map((field) => (
          <EntryList
            key={field}
            field={field}
            entries={field === "access" ? shownAccess(rule.access) : (rule[field] ?? null)}
            onChange={(entries) => change({ [field]: field === "access" ? [...identity, ...entries] : entries })}
          />
        ))}
        {approval.tool.startsWith("mcp:") && (
          <ArgumentList
            entries={rule.arguments ?? null}
            onChange={(entries) => change({ arguments: Object.keys(entries).length > 0 ? entries : null })}
          />
        )}
      </fieldset>
      <div className="flex flex-wrap gap-2">
        <Button type="submit" variant="primary" busy={busy}>
          {scope === "session" ? "Approve for this session" : "Always approve"}
        </Button>
        <Button onClick={onBack}>Back</Button>
      </div>
    </form>
  );
}

/** The fields that mean something for this call. */
function fieldsOf({ tool, effects, suggestedRule }: Approval): ListField[] {
  if (tool.startsWith("mcp:")) {
    const named: ListField[] = ["commands", "hosts"];
    const access: ListField[] = shownAccess(suggestedRule.access).length > 0 ? ["access"] : [];
    return ["tools", ...named.filter((field) => suggestedRule[field]), ...access];
  }
  if (!effects.runs) return suggestedRule.hosts ? ["tools", "hosts"] : ["tools", "paths"];
  return suggestedRule.hosts ? ["tools", "commands", "hosts"] : ["tools", "commands"];
}

/** A rule on one line. */
export function summaryOf(rule: Rule): string {
  const limits = Object.entries(rule.arguments ?? {}).map(([name, glob]) => `${name}=${glob}`);
  const within = [
    ...(rule.commands ?? []),
    ...(rule.paths ?? []),
    ...limits,
    ...(rule.hosts ?? []),
    ...shownAccess(rule.access),
  ];
  return escapedLine(`${rule.tools.join(", ")}: ${within.length > 0 ? within.join(" ; ") : "anything"}`);
}

interface ListProps {
  field: ListField;
  /** `null` does not limit the rule; an empty list covers nothing. */
  entries: string[] | null;
  onChange: (entries: string[]) => void;
}

/** One input per entry: a command may have several lines. */
function EntryList({ field, entries, onChange }: ListProps) {
  const id = useId();
  const label = field[0]?.toUpperCase() + field.slice(1);
  return (
    <div className="space-y-1">
      <p id={id} className="text-sm font-medium">
        {label} <span className="font-normal text-muted">{HINTS[field]}</span>
      </p>
      {entries === null && <p className="text-sm">any</p>}
      {entries?.map((entry, number) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: entries have no identity but their position
        <div key={number} className="space-y-1">
          <div className="flex items-start gap-1">
            <textarea
              aria-label={`${label} ${number + 1}`}
              aria-describedby={id}
              className={`${INPUT} font-mono text-xs`}
              rows={entry.split("\n").length}
              value={entry}
              onChange={({ target }) => onChange(entries.with(number, target.value))}
            />
            <Button
              isIcon
              variant="quiet"
              aria-label={`Remove ${label} ${number + 1}`}
              onClick={() => onChange(entries.toSpliced(number, 1))}
            >
              <X aria-hidden className="size-4" />
            </Button>
          </div>
          {entry.split("\n").map(shownLine).join("\n") !== entry && (
            <code className={`block text-xs ${EXACT}`}>
              <ShownText text={entry} />
            </code>
          )}
        </div>
      ))}
      <Button isIcon variant="quiet" onClick={() => onChange([...(entries ?? []), ""])} aria-label={`Add to ${label}`}>
        <Plus aria-hidden className="size-4" />
      </Button>
    </div>
  );
}

interface ArgumentProps {
  entries: Record<string, string> | null;
  onChange: (entries: Record<string, string>) => void;
}

/** Globs of arguments, one `name=glob` per line. */
function ArgumentList({ entries, onChange }: ArgumentProps) {
  const id = useId();
  const [text, setText] = useState(
    Object.entries(entries ?? {})
      .map(([name, glob]) => `${name}=${glob}`)
      .join("\n"),
  );
  return (
    <div className="space-y-1">
      <label htmlFor={id} className="block text-sm font-medium">
        Arguments <span className="font-normal text-muted">One name=glob per line. Empty: any arguments.</span>
      </label>
      <textarea
        id={id}
        className={`${INPUT} font-mono text-xs`}
        rows={2}
        value={text}
        onChange={({ target }) => {
          setText(target.value);
          onChange(argumentsIn(target.value));
        }}
      />
    </div>
  );
}

/** Parses one `name=glob` per line. */
export function argumentsIn(text: string): Record<string, string> {
  const pairs = text.split("\n").filter((line) => line.includes("="));
  return Object.fromEntries(
    pairs.map((line) => [line.slice(0, line.indexOf("=")).trim(), line.slice(line.indexOf("=") + 1)]),
  );
}
