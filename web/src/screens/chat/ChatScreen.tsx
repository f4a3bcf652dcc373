/** Sessions on the left, the open one on the right. On a phone only one of the two is visible. */
import { MessagesSquare } from "lucide-react";
import { lazy, Suspense, useMemo, useState } from "react";
import { useRoute } from "wouter";
import type { ScreenProps } from "../../app/screenProps";
import { useShortcuts } from "../../app/shortcuts";
import { Empty } from "../../components/Empty";
import { useMayAct } from "./access";
import { SessionList } from "./SessionList";
import { SessionView } from "./SessionView";

const NewSessionDialog = lazy(() => import("./NewSessionDialog"));

export default function ChatScreen({ workspaceId }: ScreenProps) {
  const [, at] = useRoute("/w/:workspaceId/chat/:sessionId");
  const [isCreating, setIsCreating] = useState(false);
  const mayAct = useMayAct(workspaceId);
  useShortcuts(
    useMemo(() => (mayAct ? [{ keys: "n", does: "New session", act: () => setIsCreating(true) }] : []), [mayAct]),
  );
  const sessionId = at?.sessionId;
  return (
    <div className="flex h-full min-h-0">
      <aside
        aria-label="Sessions"
        className={`${sessionId ? "hidden lg:flex" : "flex"} w-full shrink-0 flex-col border-line bg-surface lg:w-64 lg:border-r`}
      >
        <SessionList workspaceId={workspaceId} current={sessionId} onNew={() => setIsCreating(true)} />
      </aside>
      <div className={`${sessionId ? "flex" : "hidden lg:flex"} min-w-0 grow flex-col`}>
        {sessionId ? (
          <SessionView key={sessionId} workspaceId={workspaceId} sessionId={sessionId} />
        ) : (
          <div className="m-auto">
            <MessagesSquare aria-hidden className="mx-auto size-10 text-muted" strokeWidth={1.2} />
            <Empty title="No session selected">
              {mayAct ? "Select a session on the left or start a new one." : "Select a session on the left."}
            </Empty>
          </div>
        )}
      </div>
      {isCreating && (
        <Suspense fallback={null}>
          <NewSessionDialog workspaceId={workspaceId} isOpen onClose={() => setIsCreating(false)} />
        </Suspense>
      )}
    </div>
  );
}
