import { FilePlus2 } from "lucide-react";
import { type FormEvent, useState } from "react";
import { Button, IconButton } from "../../components/Button";
import { Dialog } from "../../components/Dialog";
import { ErrorNote } from "../../components/ErrorNote";
import { Field } from "../../components/Field";
import { folderOf, useCreatePath } from "./files";

interface Props {
  workspaceId: string;
  /** Suggest the folder of this path. */
  near: string | null;
  onCreated: (path: string, isFolder: boolean) => void;
}

/** A button that asks for a path and creates a file, or a folder if the path ends with a slash. */
export function NewFile({ workspaceId, near, onCreated }: Props) {
  const [isOpen, setIsOpen] = useState(false);
  const [path, setPath] = useState("");
  const create = useCreatePath(workspaceId);

  function openDialog() {
    const folder = near === null ? "/" : folderOf(near);
    setPath(folder === "/" ? "/" : `${folder}/`);
    create.reset();
    setIsOpen(true);
  }

  function submit(event: FormEvent) {
    event.preventDefault();
    const isFolder = path.endsWith("/");
    const wanted = isFolder ? path.replace(/\/+$/, "") : path;
    create.mutate(
      { path: wanted, isFolder },
      {
        onSuccess: () => {
          setIsOpen(false);
          onCreated(wanted, isFolder);
        },
      },
    );
  }

  return (
    <>
      <IconButton label="New file or folder" onClick={openDialog}>
        <FilePlus2 aria-hidden className="size-4" />
      </IconButton>
      <Dialog
        title="New file or folder"
        isOpen={isOpen}
        onClose={() => setIsOpen(false)}
        foot={
          <Button variant="primary" type="submit" form="new-file" busy={create.isPending}>
            Create
          </Button>
        }
      >
        <form id="new-file" onSubmit={submit} className="space-y-3">
          <Field
            label="Path"
            required
            value={path}
            onChange={setPath}
            hint="Path from the root, e.g. /notes/ideas.md. End it with / to create a folder."
          />
          <ErrorNote error={create.error} />
        </form>
      </Dialog>
    </>
  );
}
