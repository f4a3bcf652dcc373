/** Another text for a sent message. It is sent in a fork, because what the agent did since then has happened. */
import { type KeyboardEvent, useState } from "react";
import { Button } from "../../components/Button";
import { ErrorNote } from "../../components/ErrorNote";
import type { Message } from "../../events/conversation";
import { useFork } from "./forks";

interface Props {
  workspaceId: string;
  sessionId: string;
  message: Message;
  onClose: () => void;
}

export function MessageEditor({ workspaceId, sessionId, message, onClose }: Props) {
  const [text, setText] = useState(message.text);
  const fork = useFork(workspaceId, sessionId);

  function send() {
    if (text.trim() !== "" && !fork.isPending) fork.mutate({ messageId: message.id, text });
  }

  function keyed(event: KeyboardEvent) {
    if (event.key === "Escape") onClose();
    if (event.key !== "Enter" || event.shiftKey || event.nativeEvent.isComposing) return;
    event.preventDefault();
    send();
  }

  return (
    <form
      className="space-y-2 rounded-xl border border-line-strong bg-surface p-2 focus-within:border-accent"
      onSubmit={(event) => {
        event.preventDefault();
        send();
      }}
    >
      <textarea
        aria-label="New text of the message"
        // biome-ignore lint/a11y/noAutofocus: a person has just asked to write here
        autoFocus
        value={text}
        onChange={(event) => setText(event.target.value)}
        onKeyDown={keyed}
        className="field-sizing-content max-h-80 min-h-8 w-full resize-none bg-transparent px-2 py-1 outline-none"
      />
      <ErrorNote error={fork.error} />
      <div className="flex flex-wrap items-center gap-2">
        <p className="grow text-xs text-muted">Sent in a fork. This session and the files stay as they are.</p>
        <Button small onClick={onClose}>
          Cancel
        </Button>
        <Button small variant="primary" type="submit" busy={fork.isPending} disabled={text.trim() === ""}>
          Send in a fork
        </Button>
      </div>
    </form>
  );
}
