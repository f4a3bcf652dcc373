/** One session: header, conversation, status and message box. */

import { useMemo } from "react";
import { Link } from "wouter";
import { useMe } from "../../app/me";
import { useTitle } from "../../app/title";
import { useWorkspace } from "../../app/workspaces";
import { ErrorNote } from "../../components/ErrorNote";
import { Loading } from "../../components/Loading";
import { useConversation } from "../../events/LiveProvider";
import { useIsReadOnlyLink, useMayAct } from "./access";
import { Composer } from "./Composer";
import { ConversationList } from "./ConversationList";
import { ReviewCard } from "./ReviewCard";
import { SessionHead } from "./SessionHead";
import { titleOf } from "./SessionList";
import { StatusLine } from "./StatusLine";
import { useAgents, useSession } from "./sessions";
import { SpeakersContext } from "./speakers";

export function SessionView({ workspaceId, sessionId }: { workspaceId: string; sessionId: string }) {
  const session = useSession(workspaceId, sessionId);
  const agents = useAgents(workspaceId);
  const conversation = useConversation(sessionId);
  const me = useMe().data?.id ?? null;
  const mayAct = useMayAct(workspaceId);
  const agent = agents.data?.items.find((one) => one.id === session.data?.agent_id);
  const speakers = useMemo(() => ({ agent: agent?.name ?? "Agent", me, mayAct }), [agent?.name, me, mayAct]);
  useTitle(session.data ? titleOf(session.data) : undefined);
  if (session.error) {
    return (
      <div className="p-4">
        <ErrorNote error={session.error} />
      </div>
    );
  }
  if (session.isPending) return <Loading what="session" />;
  return (
    <SpeakersContext value={speakers}>
      <SessionHead workspaceId={workspaceId} session={session.data} agent={agent} conversation={conversation} />
      <ConversationList workspaceId={workspaceId} sessionId={sessionId} conversation={conversation} />
      {mayAct && (session.data.trust ?? agent?.rules.trust) === "review" && (
        <ReviewCard workspaceId={workspaceId} sessionId={sessionId} />
      )}
      <StatusLine conversation={conversation} mayAct={mayAct} />
      {mayAct ? (
        <Composer workspaceId={workspaceId} session={session.data} conversation={conversation} />
      ) : (
        <ReadOnlyNote workspaceId={workspaceId} sessionId={sessionId} />
      )}
    </SpeakersContext>
  );
}

/** Why there is no message box. */
function ReadOnlyNote({ workspaceId, sessionId }: { workspaceId: string; sessionId: string }) {
  const role = useWorkspace(workspaceId).data?.role;
  const isLinked = useIsReadOnlyLink();
  if (role === undefined) return null;
  return (
    <p className="mx-auto w-full max-w-3xl shrink-0 px-3 pb-4 text-center text-sm text-muted">
      {role === "viewer" ? (
        "You can read this session. Members can write to the agent."
      ) : (
        <>
          Read-only view.{" "}
          {isLinked && (
            <Link href={`/w/${workspaceId}/chat/${sessionId}`} className="text-accent underline">
              Open with controls
            </Link>
          )}
        </>
      )}
    </p>
  );
}
