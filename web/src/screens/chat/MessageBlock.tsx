/** A message of a person or the agent, or a summary of earlier messages. */
import { Brain } from "lucide-react";
import { useState } from "react";
import { api, unwrap } from "../../api/client";
import { AgentAvatar, Avatar } from "../../components/Avatar";
import { Badge } from "../../components/Badge";
import { Button } from "../../components/Button";
import { Markdown } from "../../components/Markdown";
import { escapedLine } from "../../components/shownText";
import { type Message, type Run, timeOf } from "../../events/conversation";
import { SentFiles } from "./Attachments";
import { MessageActions } from "./MessageActions";
import { MessageEditor } from "./MessageEditor";
import { MessageTime } from "./MessageTime";
import { useSpeakers } from "./speakers";

interface Props {
  workspaceId: string;
  sessionId: string;
  message: Message;
  run: Run | undefined;
}

export function MessageBlock(props: Props) {
  switch (props.message.role) {
    case "user":
      return <PersonMessage {...props} />;
    case "summary":
      return <Summary message={props.message} />;
    case "assistant":
      return <AgentMessage {...props} />;
  }
}

function PersonMessage(props: Props) {
  const { workspaceId, message, run } = props;
  const [isEditing, setIsEditing] = useState(false);
  const { me } = useSpeakers();
  const isMine = message.authorId === null || message.authorId === me;
  const name = message.author ?? (isMine ? "You" : "Former member");
  const isQueued = run?.state === "queued";
  return (
    <article aria-label={isMine ? "You" : escapedLine(name)} className={FRAME}>
      <Avatar id={message.authorId ?? name} name={name} />
      <div className="min-w-0 grow">
        <header className={HEAD}>
          <span className="min-w-0 truncate text-sm font-semibold">{escapedLine(name)}</span>
          <SentAt message={message} />
          {isQueued && <Queued workspaceId={workspaceId} run={run} />}
          <span className="grow" />
          {!isQueued && !isEditing && <MessageActions {...props} onEdit={() => setIsEditing(true)} />}
        </header>
        <SentFiles workspaceId={workspaceId} files={message.attachments} />
        {isEditing ? (
          <MessageEditor {...props} onClose={() => setIsEditing(false)} />
        ) : (
          message.text && (
            <div className="w-fit max-w-full rounded-xl rounded-tl-md bg-accent-soft px-4 py-2 whitespace-pre-wrap wrap-anywhere">
              {message.text}
            </div>
          )
        )}
      </div>
    </article>
  );
}

const FRAME = "group/message flex gap-2 pt-1";
const HEAD = "flex h-7 items-center gap-2";

function SentAt({ message }: { message: Message }) {
  const time = timeOf(message.id);
  return time && <MessageTime time={time} />;
}

function Queued({ workspaceId, run }: { workspaceId: string; run: Run }) {
  const { mayAct } = useSpeakers();
  const params = { path: { workspace_id: workspaceId, run_id: run.id } };
  const cancel = () => unwrap(api.POST("/api/v1/workspaces/{workspace_id}/runs/{run_id}/cancel", { params }));
  const send = () => unwrap(api.POST("/api/v1/workspaces/{workspace_id}/runs/{run_id}/release", { params }));
  return (
    <>
      <Badge tone={run.held ? "warn" : "accent"}>{run.held ? "not sent" : "queued"}</Badge>
      {mayAct && run.held && (
        <Button small variant="quiet" onClick={() => void send()}>
          Send
        </Button>
      )}
      {mayAct && (
        <Button small variant="quiet" onClick={() => void cancel()}>
          {run.held ? "Remove" : "Cancel"}
        </Button>
      )}
    </>
  );
}

function AgentMessage(props: Props) {
  const { message } = props;
  const { agent } = useSpeakers();
  return (
    <article aria-label="Agent" aria-busy={message.isStreaming} className={FRAME}>
      <AgentAvatar />
      <div className="min-w-0 grow space-y-2">
        <header className={`${HEAD} mb-0`}>
          <span className="min-w-0 truncate text-sm font-semibold">{escapedLine(agent)}</span>
          <SentAt message={message} />
          <span className="grow" />
          {!message.isStreaming && <MessageActions {...props} />}
        </header>
        {message.thinking && <Thinking message={message} />}
        {message.text && <Markdown text={message.text} isGrowing={message.isStreaming} />}
        {message.isStreaming && message.text === "" && !message.thinking && (
          <p className="animate-pulse text-muted">…</p>
        )}
        {message.isCut && <Badge tone="warn">truncated</Badge>}
      </div>
    </article>
  );
}

function Thinking({ message }: { message: Message }) {
  // Expanded until the first text arrives.
  const isAll = message.isStreaming && message.text === "";
  return (
    <details open={isAll} className="rounded-md border border-line bg-sunken text-sm text-muted">
      <summary className="flex items-center gap-2 px-3 py-1">
        <Brain aria-hidden className="size-3.5" /> {isAll ? "Thinking…" : "Thought"}
      </summary>
      <div className="px-3 pb-2 whitespace-pre-wrap wrap-anywhere">{message.thinking}</div>
    </details>
  );
}

function Summary({ message }: { message: Message }) {
  return (
    <details className="rounded-md border border-line bg-sunken text-sm">
      <summary className="px-3 py-1 text-muted">Earlier messages were summarized</summary>
      <div className="px-3 pb-2">
        <Markdown text={message.text} />
      </div>
    </details>
  );
}
