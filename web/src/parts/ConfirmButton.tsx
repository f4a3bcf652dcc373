import { type ReactNode, useState } from "react";
import { Button } from "./Button";
import { Dialog } from "./Dialog";
import { ErrorNote } from "./ErrorNote";

interface Props {
  /** What the button says, and what is done: "Remove Grace". */
  label: string;
  /** What stands on the button, where that is shorter than `label`. */
  children?: ReactNode;
  /** What will have happened, in a sentence or two. */
  consequence: ReactNode;
  act: () => Promise<unknown>;
}

/** A button for what cannot be taken back: it says what will happen, and asks. */
export function ConfirmButton({ label, children, consequence, act }: Props) {
  const [isOpen, setIsOpen] = useState(false);
  const [isBusy, setIsBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);

  async function go() {
    setIsBusy(true);
    setError(null);
    try {
      await act();
      setIsOpen(false);
    } catch (thrown) {
      setError(thrown);
    } finally {
      setIsBusy(false);
    }
  }

  return (
    <>
      <Button look="danger" small aria-label={label} onClick={() => setIsOpen(true)}>
        {children ?? label}
      </Button>
      <Dialog
        title={`${label}?`}
        isOpen={isOpen}
        onClose={() => setIsOpen(false)}
        foot={
          <>
            <Button onClick={() => setIsOpen(false)}>Keep it</Button>
            <Button look="danger" busy={isBusy} onClick={go}>
              {label}
            </Button>
          </>
        }
      >
        <div className="space-y-3">
          <p>{consequence}</p>
          <ErrorNote error={error} />
        </div>
      </Dialog>
    </>
  );
}
