/** The changed files, with their diffs. */

import { Badge, type Tone } from "../components/Badge";
import { Diff } from "../components/Diff";
import { escapedLine } from "../components/shownText";
import type { Change } from "../events/messages";

const TONES: Record<string, Tone> = { created: "good", deleted: "bad", modified: "accent", moved: "warn" };
/** Number of diffs that start expanded: a call can change a thousand files. */
const OPEN_AT_FIRST = 3;

export function ChangeList({ changes }: { changes: readonly Change[] }) {
  if (changes.length === 0) return null;
  return (
    <ul className="space-y-2" aria-label="Changes">
      {changes.map((change, at) => (
        <li key={`${change.change} ${change.path}`}>
          {change.diff ? (
            <details open={at < OPEN_AT_FIRST}>
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
  );
}

function Head({ change }: { change: Change }) {
  if (change.change === "omitted") return <>and {change.count ?? "some"} more</>;
  return (
    <span className="inline-flex flex-wrap items-center gap-2">
      <code className="wrap-anywhere">
        {change.from_path ? `${escapedLine(change.from_path)} → ` : ""}
        {escapedLine(change.path ?? "")}
      </code>
      <Badge tone={TONES[change.change] ?? "plain"}>{change.change}</Badge>
      {change.added !== undefined && (
        <span className="text-xs">
          <span className="text-good">+{change.added}</span> <span className="text-bad">−{change.removed}</span>
        </span>
      )}
      {!change.diff && change.after?.sha256 && (
        <span className="font-mono text-xs text-muted wrap-anywhere">sha256 {escapedLine(change.after.sha256)}</span>
      )}
    </span>
  );
}
