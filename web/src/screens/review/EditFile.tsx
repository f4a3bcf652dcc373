/** An editor for one file of a review. */
import { useMutation, useQuery } from "@tanstack/react-query";
import { lazy, Suspense, useState } from "react";
import { Button } from "../../components/Button";
import { Dialog } from "../../components/Dialog";
import { ErrorNote } from "../../components/ErrorNote";
import { Loading } from "../../components/Loading";
import { escapedLine } from "../../components/shownText";

const TextView = lazy(() => import("../../editor/TextView"));

interface Props<Loaded extends { text: string }> {
  path: string;
  /** What saving does, for the person. */
  hint: string;
  load: () => Promise<Loaded>;
  /** Receives what was loaded, too: the file may have changed since. */
  save: (text: string, loaded: Loaded) => Promise<void>;
  onClose: () => void;
}

export function EditFile<Loaded extends { text: string }>({ path, hint, load, save, onClose }: Props<Loaded>) {
  const name = escapedLine(path);
  const loaded = useQuery({
    queryKey: ["edit", path],
    queryFn: load,
    staleTime: 0,
    gcTime: 0,
    refetchOnWindowFocus: false,
  });
  const [text, setText] = useState<string | null>(null);
  const saving = useMutation({
    mutationFn: async () => {
      if (text !== null && loaded.data !== undefined) await save(text, loaded.data);
    },
    onSuccess: onClose,
  });
  const hasChanged = text !== null && text !== loaded.data?.text;
  const store = () => hasChanged && !saving.isPending && saving.mutate();
  return (
    <Dialog
      title={`Edit ${name}`}
      isOpen
      wide
      onClose={onClose}
      foot={
        <>
          <span className="mr-auto self-center text-xs text-muted">{hint}</span>
          <Button onClick={onClose}>Cancel</Button>
          <Button variant="primary" busy={saving.isPending} disabled={!hasChanged} onClick={store}>
            Save
          </Button>
        </>
      }
    >
      <div className="space-y-2">
        <ErrorNote error={loaded.error ?? saving.error} />
        {loaded.isPending && <Loading what={name} />}
        {loaded.data !== undefined && (
          <div className="h-[55vh] overflow-hidden rounded-md border border-line">
            <Suspense fallback={<Loading what={name} />}>
              <TextView
                text={loaded.data.text}
                path={path}
                label={`Edit ${name}`}
                hasFocus
                onChange={setText}
                onSave={store}
              />
            </Suspense>
          </div>
        )}
      </div>
    </Dialog>
  );
}
