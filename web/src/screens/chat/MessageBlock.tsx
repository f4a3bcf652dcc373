/** A message of a person or the agent, or a summary of earlier messages. */
import { Brain, Undo2 } from "lucide-react";
import { useState } from "react";
import { api, unwrap } from "../../api/client";
import { Badge } from "../../components/Badge";
import { Button, IconButton } from "../../components/Button";
import { Markdown } from "../../components/Markdown";
import { UndoDialog } from "../../components/UndoDialog";
import { type Message, type Run, timeOf } from "../../events/conversation";
import { SentFiles } from "./Attachments";

interface Props {
  workspaceId: string;
  sessionId: string;
  message: Message;
  run: Run | undefined;
}

export function MessageBlock(props: Props) {
  switch (props.message.role) {
    case "user":
      return <UserMessage {...props} />;
    case "summary":
      return <Summary message={props.message} />;
    case "assistant":
      return <AgentMessage message={props.message} />;
  }
}

function UserMessage({ workspaceId, sessionId, message, run }: Props) {
  const [isUndoing, setIsUndoing] = useState(false);
  const time = timeOf(message.id);
  return (
    <article aria-label="You" className="group flex flex-col items-end pt-2">
      <SentFiles workspaceId={workspaceId} files={message.attachments} />
      {message.text && (
        <div className="max-w-[85%] rounded-2xl rounded-br-md bg-accent-soft px-4 py-2 whitespace-pre-wrap wrap-anywhere">
          {message.text}
        </div>
      )}
      <footer className="mt-0.5 flex h-7 items-center gap-1.5 text-xs text-muted">
        {run?.state === "queued" && <Queued workspaceId={workspaceId} run={run} />}
        {time && <time dateTime={time.toISOString()}>{time.toLocaleTimeString([], { timeStyle: "short" })}</time>}
        {run?.state === "ended" && (
          <IconButton label="Undo this run" onClick={() => setIsUndoing(true)}>
            <Undo2 aria-hidden className="size-3.5" />
          </IconButton>
        )}
      </footer>
      {run && (
        <UndoDialog
          workspaceId={workspaceId}
          sessionId={sessionId}
          request={isUndoing ? { target: { run_id: run.id }, what: "this run" } : null}
          onClose={() => setIsUndoing(false)}
        />
      )}
    </article>
  );
}

function Queued({ workspaceId, run }: { workspaceId: string; run: Run }) {
  const params = { path: { workspace_id: workspaceId, run_id: run.id } };
  const cancel = () => unwrap(api.POST("/api/v1/workspaces/{workspace_id}/runs/{run_id}/cancel", { params }));
  const send = () => unwrap(api.POST("/api/v1/workspaces/{workspace_id}/runs/{run_id}/release", { params }));
  return (
    <>
      <Badge tone={run.held ? "warn" : "accent"}>{run.held ? "not sent" : "queued"}</Badge>
      {run.held && (
        <Button small variant="quiet" onClick={() => void send()}>
          Send
        </Button>
      )}
      <Button small variant="quiet" onClick={() => void cancel()}>
        {run.held ? "Remove" : "Cancel"}
      </Button>
    </>
  );
}

function AgentMessage({ message }: { message: Message }) {
  return (
    <article aria-label="Agent" aria-busy={message.isStreaming} className="space-y-2 px-1">
      {message.thinking && <Thinking message={message} />}
      {message.text && <Markdown text={message.text} isGrowing={message.isStreaming} />}
      {message.isStreaming && message.text === "" && !message.thinking && <p className="animate-pulse text-muted">…</p>}
      {message.isCut && <Badge tone="warn">truncated</Badge>}
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
      <summary className="px-3 py-1.5 text-muted">Earlier messages were summarized</summary>
      <div className="px-3 pb-2">
        <Markdown text={message.text} />
      </div>
    </details>
  );
}
