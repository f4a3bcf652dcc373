/** Something that was said: by a person, by the agent, or a summary that stands for what was said before. */
import { Brain, Undo2 } from "lucide-react";
import { useState } from "react";
import { api, taken } from "../../api/client";
import { type Message, type Run, timeOf } from "../../events/conversation";
import { Badge } from "../../parts/Badge";
import { Button, IconButton } from "../../parts/Button";
import { Markdown } from "../../parts/Markdown";
import { UndoDialog } from "../../parts/UndoDialog";

interface Props {
  workspaceId: string;
  sessionId: string;
  message: Message;
  run: Run | undefined;
}

export function MessageBlock(props: Props) {
  switch (props.message.role) {
    case "user":
      return <PersonsMessage {...props} />;
    case "summary":
      return <Summary message={props.message} />;
    case "assistant":
      return <AgentsMessage message={props.message} />;
  }
}

function PersonsMessage({ workspaceId, sessionId, message, run }: Props) {
  const [isUndoing, setIsUndoing] = useState(false);
  const time = timeOf(message.id);
  return (
    <article aria-label="You" className="group flex flex-col items-end pt-2">
      <div className="max-w-[85%] rounded-2xl rounded-br-md bg-accent-soft px-4 py-2 whitespace-pre-wrap wrap-anywhere">
        {message.text}
      </div>
      <footer className="mt-0.5 flex h-7 items-center gap-1.5 text-xs text-muted">
        {run?.state === "queued" && <Queued workspaceId={workspaceId} run={run} />}
        {time && <time dateTime={time.toISOString()}>{time.toLocaleTimeString([], { timeStyle: "short" })}</time>}
        {run?.state === "ended" && (
          <IconButton label="Undo what this run did" onClick={() => setIsUndoing(true)}>
            <Undo2 aria-hidden className="size-3.5" />
          </IconButton>
        )}
      </footer>
      {run && (
        <UndoDialog
          workspaceId={workspaceId}
          sessionId={sessionId}
          undoing={isUndoing ? { deeds: { run_id: run.id }, what: "what this run did" } : null}
          onClose={() => setIsUndoing(false)}
        />
      )}
    </article>
  );
}

function Queued({ workspaceId, run }: { workspaceId: string; run: Run }) {
  const cancel = () =>
    taken(
      api.POST("/api/v1/workspaces/{workspace_id}/runs/{run_id}/cancel", {
        params: { path: { workspace_id: workspaceId, run_id: run.id } },
      }),
    );
  return (
    <>
      <Badge tone="accent">queued</Badge>
      <Button small look="quiet" onClick={() => void cancel()}>
        Take back
      </Button>
    </>
  );
}

function AgentsMessage({ message }: { message: Message }) {
  return (
    <article aria-label="The agent" aria-busy={message.isStreaming} className="space-y-2 px-1">
      {message.thinking && <Thinking message={message} />}
      {message.text && <Markdown text={message.text} isGrowing={message.isStreaming} />}
      {message.isStreaming && message.text === "" && !message.thinking && <p className="animate-pulse text-muted">…</p>}
      {message.isCut && <Badge tone="warn">cut short</Badge>}
    </article>
  );
}

function Thinking({ message }: { message: Message }) {
  // Open while it is all there is to see; then it makes room.
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
      <summary className="px-3 py-1.5 text-muted">What was said before was summed up for the model</summary>
      <div className="px-3 pb-2">
        <Markdown text={message.text} />
      </div>
    </details>
  );
}
