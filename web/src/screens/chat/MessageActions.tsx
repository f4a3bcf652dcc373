/** What can be done with a message: copy, edit, answer again, fork, undo. Shown on hover and focus, always on touch. */
import { GitFork, Pencil, RefreshCw, Undo2 } from "lucide-react";
import { useDeferredValue, useState } from "react";
import { IconButton } from "../../components/Button";
import { CopyButton } from "../../components/CopyButton";
import { ErrorNote } from "../../components/ErrorNote";
import { UndoDialog } from "../../components/UndoDialog";
import type { Message, Run } from "../../events/conversation";
import { useLive } from "../../events/LiveProvider";
import { questionOf, useFork } from "./forks";
import { useSpeakers } from "./speakers";

interface Props {
  workspaceId: string;
  sessionId: string;
  message: Message;
  run: Run | undefined;
  onEdit?: () => void;
}

/** Rendered after the messages: nobody sees it before they point at one. */
export function MessageActions(props: Props) {
  return useDeferredValue(true, false) && <Actions {...props} />;
}

function Actions({ workspaceId, sessionId, message, run, onEdit }: Props) {
  const { mayAct } = useSpeakers();
  const live = useLive();
  const fork = useFork(workspaceId, sessionId);
  const [isUndoing, setIsUndoing] = useState(false);
  const isPerson = message.role === "user";

  function again() {
    const conversation = live.store.getState().conversations[sessionId];
    const question = isPerson ? message : conversation && questionOf(conversation, message.id);
    if (question) fork.mutate({ messageId: question.id, text: question.text });
  }

  return (
    <>
      <span className="flex opacity-0 transition-opacity group-focus-within/message:opacity-100 group-hover/message:opacity-100 pointer-coarse:opacity-100">
        <CopyButton
          text={message.text}
          label="Copy message"
          className="border-transparent bg-transparent opacity-100!"
        />
        {mayAct && (
          <>
            {onEdit && (
              <IconButton label="Edit and resend" onClick={onEdit}>
                <Pencil aria-hidden className="size-3.5" />
              </IconButton>
            )}
            {!isPerson && (
              <IconButton label="Answer again in a fork" busy={fork.isPending} onClick={again}>
                <RefreshCw aria-hidden className="size-3.5" />
              </IconButton>
            )}
            <IconButton
              label="Fork from here"
              disabled={fork.isPending}
              onClick={() => fork.mutate({ messageId: message.id })}
            >
              <GitFork aria-hidden className="size-3.5" />
            </IconButton>
            {isPerson && run?.state === "ended" && (
              <IconButton label="Undo this run" onClick={() => setIsUndoing(true)}>
                <Undo2 aria-hidden className="size-3.5" />
              </IconButton>
            )}
          </>
        )}
      </span>
      <ErrorNote error={fork.error} />
      {isUndoing && run && (
        <UndoDialog
          workspaceId={workspaceId}
          sessionId={sessionId}
          request={{ target: { run_id: run.id }, what: "this run" }}
          onClose={() => setIsUndoing(false)}
        />
      )}
    </>
  );
}
