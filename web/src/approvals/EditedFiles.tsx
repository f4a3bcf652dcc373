/** What the person who approved a call had changed in it. */
import { Diff } from "../components/Diff";
import { escapedLine } from "../components/shownText";
import type { Approval } from "../events/conversation";

export function EditedFiles({ approval: { edits, decidedBy } }: { approval: Approval }) {
  if (edits.length === 0) return null;
  return (
    <section aria-label="Edited before approval" className="space-y-2">
      <h3 className="text-sm font-medium">
        {escapedLine(decidedBy ?? "Someone")} edited {edits.length === 1 ? "1 file" : `${edits.length} files`} before
        approving
      </h3>
      {edits.map(({ path, diff }) => (
        <div key={path}>
          <p className="font-mono text-xs wrap-anywhere">{escapedLine(path)}</p>
          {diff && <Diff diff={diff} label={`${escapedLine(path)}, as edited`} />}
        </div>
      ))}
    </section>
  );
}
