/** The comments on a line, and the form for a new one. */
import { MessageSquare, X } from "lucide-react";
import { useId, useState } from "react";
import { Badge } from "../../components/Badge";
import { Button, IconButton } from "../../components/Button";
import { INPUT } from "../../components/Labelled";
import { escaped } from "../../components/shownText";
import { type Comment, placeOf } from "./comments";

interface FormProps {
  lineKey: string;
  canSend: boolean;
  isSending: boolean;
  onAdd: (text: string) => void;
  onSend: (text: string) => void;
  onClose: () => void;
}

export function CommentForm({ lineKey, canSend, isSending, onAdd, onSend, onClose }: FormProps) {
  const [text, setText] = useState("");
  const id = useId();
  const isEmpty = text.trim() === "";
  return (
    <form
      aria-label={`Comment on ${placeOf(lineKey)}`}
      className="my-2 ml-2 mr-2 max-w-2xl space-y-2 rounded-md border border-line-strong bg-surface p-2 font-sans shadow-card"
      onSubmit={(event) => {
        event.preventDefault();
        if (!isEmpty) onAdd(text);
      }}
    >
      <label htmlFor={id} className="block text-xs font-medium">
        Comment on {placeOf(lineKey)}
      </label>
      <textarea
        id={id}
        ref={(element) => element?.focus()}
        rows={3}
        maxLength={4_000}
        value={text}
        className={`${INPUT} text-sm`}
        onChange={({ target }) => setText(target.value)}
        onKeyDown={(event) => {
          if (event.key === "Escape") onClose();
          if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) event.currentTarget.form?.requestSubmit();
        }}
      />
      <div className="flex flex-wrap justify-end gap-2">
        <Button small variant="quiet" onClick={onClose}>
          Cancel
        </Button>
        <Button small disabled={isEmpty || !canSend} busy={isSending} onClick={() => onSend(text)}>
          Send now
        </Button>
        <Button small type="submit" variant="primary" disabled={isEmpty}>
          Add comment
        </Button>
      </div>
    </form>
  );
}

export function CommentBox({ comment, onRemove }: { comment: Comment; onRemove: () => void }) {
  return (
    <div className="my-2 ml-2 mr-2 flex max-w-2xl gap-2 rounded-md border border-line bg-surface p-2 font-sans text-sm">
      <MessageSquare aria-hidden className="mt-0.5 size-4 shrink-0 text-accent" />
      <p className="min-w-0 grow whitespace-pre-wrap wrap-anywhere">{escaped(comment.text)}</p>
      {comment.isSent ? (
        <span>
          <Badge tone="good">sent</Badge>
        </span>
      ) : (
        <>
          <span>
            <Badge tone="warn">not sent</Badge>
          </span>
          <IconButton label="Remove comment" onClick={onRemove} className="-my-1">
            <X aria-hidden className="size-3.5" />
          </IconButton>
        </>
      )}
    </div>
  );
}
