/** One session: header, conversation, status and message box. */

import { useTitle } from "../../app/title";
import { ErrorNote } from "../../components/ErrorNote";
import { Loading } from "../../components/Loading";
import { useConversation } from "../../events/LiveProvider";
import { Composer } from "./Composer";
import { ConversationList } from "./ConversationList";
import { ReviewCard } from "./ReviewCard";
import { SessionHead } from "./SessionHead";
import { titleOf } from "./SessionList";
import { StatusLine } from "./StatusLine";
import { useAgents, useSession } from "./sessions";

export function SessionView({ workspaceId, sessionId }: { workspaceId: string; sessionId: string }) {
  const session = useSession(workspaceId, sessionId);
  const agents = useAgents(workspaceId);
  const conversation = useConversation(sessionId);
  useTitle(session.data ? titleOf(session.data) : undefined);
  if (session.error) {
    return (
      <div className="p-4">
        <ErrorNote error={session.error} />
      </div>
    );
  }
  if (session.isPending) return <Loading what="session" />;
  const agent = agents.data?.items.find((one) => one.id === session.data.agent_id);
  return (
    <>
      <SessionHead workspaceId={workspaceId} session={session.data} agent={agent} conversation={conversation} />
      <ConversationList workspaceId={workspaceId} sessionId={sessionId} conversation={conversation} />
      {(session.data.trust ?? agent?.rules.trust) === "review" && (
        <ReviewCard workspaceId={workspaceId} sessionId={sessionId} />
      )}
      <StatusLine conversation={conversation} />
      <Composer workspaceId={workspaceId} session={session.data} conversation={conversation} />
    </>
  );
}
