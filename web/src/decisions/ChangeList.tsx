/** What would become of each file, with its diff where there is one. */

import type { Change } from "../events/wire";
import { Badge, type Tone } from "../parts/Badge";
import { Diff } from "../parts/Diff";

const TONES: Record<string, Tone> = { made: "good", deleted: "bad", changed: "accent", moved: "warn" };
/** Beyond this the others' diffs are opened by hand: a call may touch a thousand files. */
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
                <Diff diff={change.diff} label={change.path ?? "the file"} />
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
  if (change.change === "more") return <>and {change.count ?? "some"} more</>;
  return (
    <span className="inline-flex flex-wrap items-center gap-2">
      <code className="wrap-anywhere">
        {change.from_path ? `${change.from_path} → ` : ""}
        {change.path}
      </code>
      <Badge tone={TONES[change.change] ?? "plain"}>{change.change}</Badge>
      {change.added !== undefined && (
        <span className="text-xs">
          <span className="text-good">+{change.added}</span> <span className="text-bad">−{change.removed}</span>
        </span>
      )}
    </span>
  );
}
