/** The files of a workspace: tree, search and deleted files on the left, the selected file on the right. */
import { useQueryClient } from "@tanstack/react-query";
import { RefreshCw } from "lucide-react";
import { useCallback, useEffect } from "react";
import { useQueryParameters } from "../../app/query";
import type { ScreenProps } from "../../app/screenProps";
import { useMayWrite } from "../../app/workspaces";
import { IconButton } from "../../components/Button";
import { Empty } from "../../components/Empty";
import { DeletedFiles } from "./DeletedFiles";
import { FileTree } from "./FileTree";
import { FileView } from "./FileView";
import { invalidateFiles } from "./files";
import { NewFile } from "./NewFile";
import { SearchFiles } from "./SearchFiles";

const PANELS = { tree: "Tree", search: "Search", deleted: "Deleted" } as const;
type Panel = keyof typeof PANELS;

/** The address holds the selected file and view, so that it can be shared and `back` works. */
export default function FilesScreen({ workspaceId }: ScreenProps) {
  const [at, go] = useQueryParameters();
  const path = at.get("path");
  const panel = panelOf(at.get("panel"));
  const line = Number(at.get("line")) || undefined;

  const show = useCallback(
    (shown: string, shownLine?: number) =>
      go({ path: shown, line: shownLine === undefined ? null : String(shownLine), view: null, version: null }),
    [go],
  );
  const queries = useQueryClient();
  const mayWrite = useMayWrite(workspaceId);
  useTreeOnNarrowScreens(path);

  return (
    <div className="flex h-full min-h-0">
      <aside
        aria-label="Find a file"
        className={`w-full min-w-0 shrink-0 flex-col border-r border-line bg-surface md:flex md:w-72 ${path === null ? "flex" : "hidden"}`}
      >
        {path === null && <h1 className="sr-only">Files</h1>}
        <div className="flex items-center gap-1 border-b border-line p-2">
          {(Object.keys(PANELS) as Panel[]).map((name) => (
            <button
              key={name}
              type="button"
              aria-pressed={panel === name}
              onClick={() => go({ panel: name === "tree" ? null : name })}
              className="min-h-8 rounded-md px-2 text-muted hover:bg-accent-soft hover:text-ink aria-pressed:bg-accent-soft aria-pressed:font-medium aria-pressed:text-accent"
            >
              {PANELS[name]}
            </button>
          ))}
          <span className="grow" />
          <IconButton label="Refresh" onClick={() => void invalidateFiles(queries, workspaceId)}>
            <RefreshCw aria-hidden className="size-4" />
          </IconButton>
          {mayWrite && (
            <NewFile workspaceId={workspaceId} near={path} onCreated={(made, isFolder) => !isFolder && show(made)} />
          )}
        </div>
        <div className="min-h-0 grow overflow-y-auto">
          {panel === "tree" && <FileTree workspaceId={workspaceId} shown={path} onShow={show} />}
          {panel === "search" && <SearchFiles workspaceId={workspaceId} onShow={show} />}
          {panel === "deleted" && <DeletedFiles workspaceId={workspaceId} onRestored={show} />}
        </div>
      </aside>
      <div className={`min-w-0 grow md:block ${path === null ? "hidden" : "block"}`}>
        {path === null ? (
          <Empty title="No file selected">
            Select a file on the left, or press Ctrl K and type its name. Untracked files have a dashed circle.
          </Empty>
        ) : (
          <FileView key={path} workspaceId={workspaceId} path={path} line={line} at={at} go={go} />
        )}
      </div>
    </div>
  );
}

function panelOf(name: string | null): Panel {
  return name === "search" || name === "deleted" ? name : "tree";
}

/** On narrow screens the file replaces the tree and receives the focus. */
function useTreeOnNarrowScreens(path: string | null): void {
  useEffect(() => {
    if (path !== null && !matchMedia("(min-width: 768px)").matches) document.getElementById("file-title")?.focus();
  }, [path]);
}
