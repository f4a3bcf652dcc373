/** The message box. Enter sends; messages are queued while the agent works. */
import { ArrowUp, Square } from "lucide-react";
import { type KeyboardEvent, useMemo, useRef, useState } from "react";
import { useShortcuts } from "../../app/shortcuts";
import { Button } from "../../components/Button";
import { ErrorNote } from "../../components/ErrorNote";
import { type Conversation, currentRun } from "../../events/conversation";
import { useLive, useLiveStatus } from "../../events/LiveProvider";
import type { Session } from "./sessions";

interface Props {
  workspaceId: string;
  session: Session;
  conversation: Conversation;
}

export function Composer({ session, conversation }: Props) {
  const live = useLive();
  const isLive = useLiveStatus() === "live";
  const key = `toolcrib-draft-${session.id}`;
  const [text, setText] = useState(() => sessionStorage.getItem(key) ?? "");
  const [error, setError] = useState<unknown>(null);
  const [isSending, setIsSending] = useState(false);
  const field = useRef<HTMLTextAreaElement>(null);
  const run = currentRun(conversation);
  useShortcuts(useMemo(() => [{ keys: "/", does: "Write a message", act: () => field.current?.focus() }], []));

  function updateText(value: string) {
    setText(value);
    // Survives a reload, until the tab closes.
    sessionStorage.setItem(key, value);
  }

  async function send() {
    if (text.trim() === "" || isSending) return;
    setIsSending(true);
    setError(null);
    try {
      await live.request("chat:send", { conversationId: session.id, content: text });
      updateText("");
    } catch (thrown) {
      setError(thrown);
    }
    setIsSending(false);
  }

  async function stop() {
    setError(null);
    await live.request("chat:cancel", { conversationId: session.id }).catch(setError);
  }

  function keyed(event: KeyboardEvent) {
    if (event.key !== "Enter" || event.shiftKey || event.nativeEvent.isComposing) return;
    event.preventDefault();
    void send();
  }

  return (
    <div className="shrink-0 pb-3">
      <div className="mx-auto max-w-3xl space-y-2 px-3">
        <ErrorNote error={error} />
        <form
          onSubmit={(event) => {
            event.preventDefault();
            void send();
          }}
          className="flex items-end gap-2 rounded-xl border border-line-strong bg-surface p-2 shadow-card focus-within:border-accent"
        >
          <textarea
            ref={field}
            aria-label="Message"
            placeholder={session.agent_id ? "Message the agent…" : "This session has no agent."}
            disabled={session.agent_id === null}
            value={text}
            rows={1}
            onChange={(event) => updateText(event.target.value)}
            onKeyDown={keyed}
            className="field-sizing-content max-h-48 min-h-8 grow resize-none bg-transparent px-1.5 py-1.5 leading-5 outline-none placeholder:text-muted"
          />
          {run && (
            <Button small onClick={stop} disabled={!isLive} className="min-h-8">
              <Square aria-hidden className="size-3 fill-current" /> Stop
            </Button>
          )}
          <Button
            type="submit"
            small
            variant="primary"
            className="min-h-8"
            busy={isSending}
            disabled={!isLive || text.trim() === ""}
          >
            <ArrowUp aria-hidden className="size-4" /> {run ? "Queue" : "Send"}
          </Button>
        </form>
      </div>
    </div>
  );
}
