/** Sessions at the left, the one that is open at the right; on a phone one after the other. */
import { MessagesSquare } from "lucide-react";
import { useMemo, useState } from "react";
import { useRoute } from "wouter";
import type { ScreenProps } from "../../app/screens";
import { useShortcuts } from "../../app/shortcuts";
import { Empty } from "../../parts/Empty";
import { NewSessionDialog } from "./NewSessionDialog";
import { SessionList } from "./SessionList";
import { SessionView } from "./SessionView";

export default function ChatScreen({ workspaceId }: ScreenProps) {
  const [, at] = useRoute("/w/:workspaceId/chat/:sessionId");
  const [isBeginning, setIsBeginning] = useState(false);
  useShortcuts(useMemo(() => [{ keys: "n", does: "Begin a session", act: () => setIsBeginning(true) }], []));
  const sessionId = at?.sessionId;
  return (
    <div className="flex h-full min-h-0">
      <aside
        aria-label="Sessions"
        className={`${sessionId ? "hidden lg:flex" : "flex"} w-full shrink-0 flex-col border-line bg-surface lg:w-64 lg:border-r`}
      >
        <SessionList workspaceId={workspaceId} current={sessionId} onNew={() => setIsBeginning(true)} />
      </aside>
      <div className={`${sessionId ? "flex" : "hidden lg:flex"} min-w-0 grow flex-col`}>
        {sessionId ? (
          <SessionView key={sessionId} workspaceId={workspaceId} sessionId={sessionId} />
        ) : (
          <div className="m-auto">
            <MessagesSquare aria-hidden className="mx-auto size-10 text-muted" strokeWidth={1.2} />
            <Empty title="No session is open">Choose one at the left, or begin a new one.</Empty>
          </div>
        )}
      </div>
      <NewSessionDialog workspaceId={workspaceId} isOpen={isBeginning} onClose={() => setIsBeginning(false)} />
    </div>
  );
}
