/** The message box. Enter sends; messages are queued while the agent works. Files are chosen, pasted or dropped. */
import { ArrowUp, Paperclip, Square } from "lucide-react";
import { type ClipboardEvent, type DragEvent, type KeyboardEvent, useMemo, useRef, useState } from "react";
import { flushSync } from "react-dom";
import { api, unwrap } from "../../api/client";
import { useShortcuts } from "../../app/shortcuts";
import { Button, IconButton } from "../../components/Button";
import { ErrorNote } from "../../components/ErrorNote";
import { type Conversation, currentRun } from "../../events/conversation";
import { useLive, useLiveStatus } from "../../events/LiveProvider";
import { ChosenFiles } from "./Attachments";
import { type ChosenFile, flawOf, MAX_FILES, readFile, withPaths } from "./files";
import type { Session } from "./sessions";
import { putIntoWorkspace } from "./uploads";

interface Props {
  workspaceId: string;
  session: Session;
  conversation: Conversation;
}

export function Composer({ workspaceId, session, conversation }: Props) {
  const live = useLive();
  const isLive = useLiveStatus() === "live";
  const key = `toolcrib-draft-${session.id}`;
  const [text, setText] = useState(() => sessionStorage.getItem(key) ?? "");
  const [error, setError] = useState<unknown>(null);
  const [isSending, setIsSending] = useState(false);
  const [files, setFiles] = useState<readonly ChosenFile[]>([]);
  const [isDropping, setIsDropping] = useState(false);
  /** The same files, for what was begun before they were read. */
  const latest = useRef(files);
  /** Ends when the files chosen so far are read: a small file does not pass a large one chosen before it. */
  const reading = useRef<Promise<void>>(Promise.resolve());
  /** Whether files were refused since the last try to send. */
  const wasRefused = useRef(false);
  /** Where files of this message are already, if it could not be sent. */
  const putPaths = useRef(new Map<string, string>());
  const picker = useRef<HTMLInputElement>(null);
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
    wasRefused.current = false;
    try {
      await reading.current;
      // The message was meant with them: its author decides again.
      if (wasRefused.current) return;
      const sent = latest.current;
      const content = withPaths(text, await putFiles(sent));
      // A WebSocket message is too small for files.
      if (sent.some((file) => file.data !== null)) await sendWithFiles(content, sent);
      else await live.request("chat:send", { conversationId: session.id, content });
      // What was typed on meanwhile stays; at once, for the next key adds to what the field has then.
      const typed = field.current?.value ?? "";
      flushSync(() => updateText(typed.startsWith(text) ? typed.slice(text.length).trimStart() : typed));
      updateFiles(latest.current.filter((file) => !sent.includes(file)));
    } catch (thrown) {
      setError(thrown);
    } finally {
      setIsSending(false);
    }
  }

  /** Puts the files that are no attachments into the workspace. Returns their paths. */
  async function putFiles(sent: readonly ChosenFile[]): Promise<string[]> {
    const paths: string[] = [];
    for (const file of sent) {
      if (file.content === null) continue;
      const path = putPaths.current.get(file.id) ?? (await putIntoWorkspace(workspaceId, session.id, file));
      putPaths.current.set(file.id, path);
      paths.push(path);
    }
    return paths;
  }

  function sendWithFiles(content: string, sent: readonly ChosenFile[]) {
    const attachments = sent.flatMap(({ name, data }) => (data === null ? [] : [{ name, data }]));
    return unwrap(
      api.POST("/api/v1/workspaces/{workspace_id}/sessions/{session_id}/messages", {
        params: { path: { workspace_id: workspaceId, session_id: session.id } },
        body: { text: content, attachments, priority: 100 },
      }),
    );
  }

  function updateFiles(value: readonly ChosenFile[]) {
    latest.current = value;
    setFiles(value);
  }

  function add(chosen: readonly File[]) {
    reading.current = reading.current.then(() => read(chosen));
  }

  async function read(chosen: readonly File[]) {
    setError(null);
    try {
      const flaw = chosen.map(flawOf).find((found) => found !== null);
      if (flaw) throw new Error(flaw);
      if (latest.current.length + chosen.length > MAX_FILES)
        throw new Error(`A message can bring at most ${MAX_FILES} files.`);
      const more = await Promise.all(chosen.map(readFile));
      updateFiles([...latest.current, ...more]);
    } catch (thrown) {
      wasRefused.current = true;
      setError(thrown);
    }
  }

  function pasted(event: ClipboardEvent) {
    const found = [...event.clipboardData.files];
    // Text stays text: some programs put a picture of it on the clipboard as well.
    if (found.length === 0 || event.clipboardData.getData("text/plain") !== "") return;
    event.preventDefault();
    add(found);
  }

  function dragged(event: DragEvent) {
    if (!event.dataTransfer.types.includes("Files")) return;
    event.preventDefault();
    setIsDropping(true);
  }

  function dropped(event: DragEvent) {
    setIsDropping(false);
    if (event.dataTransfer.files.length === 0) return;
    event.preventDefault();
    if (session.agent_id !== null) add([...event.dataTransfer.files]);
  }

  function remove(file: ChosenFile) {
    updateFiles(latest.current.filter((one) => one !== file));
    field.current?.focus();
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
          onDragOver={dragged}
          onDragLeave={() => setIsDropping(false)}
          onDrop={dropped}
          className={`space-y-2 rounded-xl border bg-surface p-2 shadow-card focus-within:border-accent ${isDropping ? "border-accent bg-accent-soft" : "border-line-strong"}`}
        >
          <ChosenFiles files={files} onRemove={remove} />
          <div className="flex items-end gap-2">
            <input
              ref={picker}
              type="file"
              multiple
              hidden
              aria-label="Files to attach"
              onChange={(event) => {
                add([...(event.target.files ?? [])]);
                // The same file can be chosen again.
                event.target.value = "";
              }}
            />
            <IconButton
              label="Attach files"
              disabled={session.agent_id === null}
              onClick={() => picker.current?.click()}
              className="min-h-8 pointer-coarse:min-h-11 pointer-coarse:min-w-11"
            >
              <Paperclip aria-hidden className="size-4" />
            </IconButton>
            <textarea
              ref={field}
              aria-label="Message"
              placeholder={session.agent_id ? "Message the agent…" : "This session has no agent."}
              disabled={session.agent_id === null}
              value={text}
              rows={1}
              onChange={(event) => updateText(event.target.value)}
              onKeyDown={keyed}
              onPaste={pasted}
              className="field-sizing-content max-h-48 min-h-8 pointer-coarse:min-h-11 pointer-coarse:py-3 min-w-0 grow resize-none bg-transparent px-2 py-1 leading-6 outline-none placeholder:text-muted"
            />
            {run && (
              <Button small onClick={stop} disabled={!isLive} className="min-h-8 pointer-coarse:min-h-11">
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
          </div>
        </form>
      </div>
    </div>
  );
}
