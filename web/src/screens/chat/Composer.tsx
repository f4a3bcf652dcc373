/** Where a person writes. Enter sends; while the agent is at work, what is sent waits its turn. */
import { ArrowUp, Square } from "lucide-react";
import { type KeyboardEvent, useMemo, useRef, useState } from "react";
import { useShortcuts } from "../../app/shortcuts";
import { type Conversation, currentRun } from "../../events/conversation";
import { useLive, useLiveStatus } from "../../events/LiveProvider";
import { Button } from "../../parts/Button";
import { ErrorNote } from "../../parts/ErrorNote";
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

  function write(words: string) {
    setText(words);
    // Survives a reload of the page, and goes with its tab.
    sessionStorage.setItem(key, words);
  }

  async function send() {
    if (text.trim() === "" || isSending) return;
    setIsSending(true);
    setError(null);
    try {
      await live.ask("chat:send", { conversationId: session.id, content: text });
      write("");
    } catch (refusal) {
      setError(refusal);
    }
    setIsSending(false);
  }

  async function stop() {
    setError(null);
    await live.ask("chat:cancel", { conversationId: session.id }).catch(setError);
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
            placeholder={session.agent_id ? "Say what to do…" : "This session has no agent, so nobody would answer."}
            disabled={session.agent_id === null}
            value={text}
            rows={1}
            onChange={(event) => write(event.target.value)}
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
            look="primary"
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
