/** The changed files, with totals and the diff of each. */
import { useState } from "react";
import { Badge, type Tone } from "../components/Badge";
import { Button } from "../components/Button";
import { Diff } from "../components/Diff";
import { changedPath, changeFacts, changeHead, escapedLine, grouped, totalsOf } from "../components/shownText";
import type { Change } from "../events/messages";

const TONES: Record<string, Tone> = { created: "good", deleted: "bad", modified: "accent", moved: "warn" };
/** Number of diffs that start expanded: a call can change a thousand files. */
const OPEN_AT_FIRST = 3;

export function ChangeList({ changes }: { changes: readonly Change[] }) {
  const [isAllOpen, setIsAllOpen] = useState(false);
  if (changes.length === 0) return null;
  const folded = changes.slice(OPEN_AT_FIRST).filter((change) => change.diff).length;
  return (
    <div className="space-y-2">
      <p className="flex flex-wrap items-center gap-2 text-sm">
        <span className="font-medium">{totalsOf(changes)}</span>
        {folded > 0 && !isAllOpen && (
          <>
            <span className="text-muted">{grouped(folded)} diffs are folded</span>
            <Button small onClick={() => setIsAllOpen(true)}>
              Open all
            </Button>
          </>
        )}
      </p>
      <ul className="space-y-2" aria-label="Changes">
        {changes.map((change, at) => (
          <li key={`${change.change} ${change.path}`}>
            {change.diff ? (
              <details key={String(isAllOpen)} open={isAllOpen || at < OPEN_AT_FIRST}>
                <summary className="text-sm">
                  <Head change={change} />
                </summary>
                <div className="mt-1">
                  <Diff diff={change.diff} label={escapedLine(change.path ?? "file")} />
                </div>
              </details>
            ) : (
              <p className="text-sm">
                <Head change={change} />
              </p>
            )}
          </li>
        ))}
      </ul>
    </div>
  );
}

function Head({ change }: { change: Change }) {
  if (change.change === "omitted") return changeHead(change);
  const facts = changeFacts(change);
  return (
    <span className="inline-flex max-w-[calc(100%-1.25rem)] flex-wrap items-center gap-2 align-middle">
      <code className="min-w-0 wrap-anywhere [direction:ltr] [unicode-bidi:bidi-override]">{changedPath(change)}</code>
      <Badge tone={TONES[change.change] ?? "plain"}>{change.change}</Badge>
      {change.added != null && (
        <span className="text-xs">
          <span className="text-good">+{grouped(change.added)}</span>{" "}
          <span className="text-bad">-{grouped(change.removed ?? 0)}</span>
        </span>
      )}
      {facts.length > 0 && <span className="min-w-0 text-xs text-muted wrap-anywhere">{facts.join(", ")}</span>}
    </span>
  );
}
