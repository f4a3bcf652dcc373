/** One row of a conversation. Rendered again only when the row changes. */
import { TriangleAlert } from "lucide-react";
import { memo } from "react";
import type { Note, Row, Run } from "../../events/conversation";
import { CallBlock } from "./CallBlock";
import { MessageBlock } from "./MessageBlock";

interface Props {
  workspaceId: string;
  sessionId: string;
  row: Row;
  run: Run | undefined;
  plan: string | null;
}

export const RowView = memo(function RowView({ workspaceId, sessionId, row, run, plan }: Props) {
  switch (row.kind) {
    case "message":
      return <MessageBlock workspaceId={workspaceId} sessionId={sessionId} message={row} run={run} />;
    case "call":
      return <CallBlock workspaceId={workspaceId} sessionId={sessionId} call={row} plan={plan} />;
    case "note":
      return <NoteBlock note={row} />;
  }
});

function NoteBlock({ note }: { note: Note }) {
  return (
    <p
      className={`flex items-center gap-2 rounded-md px-3 py-1 text-sm ${note.tone === "bad" ? "bg-bad-soft text-bad" : "bg-sunken text-muted"}`}
    >
      {note.tone === "bad" && <TriangleAlert aria-hidden className="size-4 shrink-0" />}
      <span className="min-w-0 wrap-anywhere">{note.text}</span>
    </p>
  );
}
