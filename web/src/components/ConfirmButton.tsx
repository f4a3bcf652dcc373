import { type ReactNode, useState } from "react";
import { Button } from "./Button";
import { Dialog } from "./Dialog";
import { ErrorNote } from "./ErrorNote";

interface Props {
  /** The action, for the dialog and screen readers: "Remove Grace". */
  label: string;
  /** A shorter text for the button. */
  children?: ReactNode;
  /** The consequence, in a sentence or two. */
  consequence: ReactNode;
  act: () => Promise<unknown>;
}

/** A button for irreversible actions. It shows the consequence and asks for confirmation. */
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
      <Button variant="danger" small aria-label={label} onClick={() => setIsOpen(true)}>
        {children ?? label}
      </Button>
      <Dialog
        title={`${label}?`}
        isOpen={isOpen}
        onClose={() => setIsOpen(false)}
        foot={
          <>
            <Button onClick={() => setIsOpen(false)}>Cancel</Button>
            <Button variant="danger" busy={isBusy} onClick={go}>
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
