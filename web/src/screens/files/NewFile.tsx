import { FilePlus2 } from "lucide-react";
import { type FormEvent, useState } from "react";
import { Button, IconButton } from "../../parts/Button";
import { Dialog } from "../../parts/Dialog";
import { ErrorNote } from "../../parts/ErrorNote";
import { Field } from "../../parts/Field";
import { folderOf, useMake } from "./files";

interface Props {
  workspaceId: string;
  /** The new one is suggested to stand beside this. */
  near: string | null;
  onMade: (path: string, isFolder: boolean) => void;
}

/** A button that asks for a path and makes a file there, or, if it ends with a slash, a folder. */
export function NewFile({ workspaceId, near, onMade }: Props) {
  const [isOpen, setIsOpen] = useState(false);
  const [path, setPath] = useState("");
  const make = useMake(workspaceId);

  function ask() {
    const folder = near === null ? "/" : folderOf(near);
    setPath(folder === "/" ? "/" : `${folder}/`);
    make.reset();
    setIsOpen(true);
  }

  function submit(event: FormEvent) {
    event.preventDefault();
    const isFolder = path.endsWith("/");
    const wanted = isFolder ? path.replace(/\/+$/, "") : path;
    make.mutate(
      { path: wanted, isFolder },
      {
        onSuccess: () => {
          setIsOpen(false);
          onMade(wanted, isFolder);
        },
      },
    );
  }

  return (
    <>
      <IconButton label="New file or folder" onClick={ask}>
        <FilePlus2 aria-hidden className="size-4" />
      </IconButton>
      <Dialog
        title="New file or folder"
        isOpen={isOpen}
        onClose={() => setIsOpen(false)}
        foot={
          <Button look="primary" type="submit" form="new-file" busy={make.isPending}>
            Make it
          </Button>
        }
      >
        <form id="new-file" onSubmit={submit} className="space-y-3">
          <Field
            label="Path"
            required
            value={path}
            onChange={setPath}
            hint="From the root, as /notes/ideas.md. With a slash at the end it becomes a folder."
          />
          <ErrorNote error={make.error} />
        </form>
      </Dialog>
    </>
  );
}
