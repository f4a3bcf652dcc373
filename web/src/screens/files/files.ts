/** What the Files screen asks of the server, and what is asked anew when a file has changed. */
import { type QueryClient, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { api, type Schema, taken } from "../../api/client";
import { callTool } from "../../api/tools";
import type { Draft } from "./drafts";

export type Entry = Schema["Entry"];
export type FileVersion = Schema["FileVersion"];
export type HistoryFile = Schema["HistoryFile"];

/** How many entries of a folder are shown; who has more is told to search. */
export const MOST_ENTRIES = 2_000;
const MOST_LINES = 1_000_000;

const key = (workspaceId: string, ...rest: unknown[]) => ["files", workspaceId, ...rest] as const;

/** Every file may look different now: trees, contents, histories. */
export function forgetFiles(queries: QueryClient, workspaceId: string): Promise<void> {
  return queries.invalidateQueries({ queryKey: key(workspaceId) });
}

export function folderQuery(workspaceId: string, path: string) {
  return {
    queryKey: key(workspaceId, "folder", path),
    queryFn: () => callTool(workspaceId, "ls", { path, limit: MOST_ENTRIES }),
  };
}

export function useFileInfo(workspaceId: string, path: string) {
  return useQuery({
    queryKey: key(workspaceId, "info", path),
    queryFn: () => callTool(workspaceId, "file_info", { path }),
  });
}

export function useContent(workspaceId: string, path: string) {
  return useQuery({
    queryKey: key(workspaceId, "content", path),
    queryFn: () => callTool(workspaceId, "read", { path, limit: MOST_LINES }),
  });
}

/** A file's id in the history, which `ls` of its folder tells; null for what only the disk knows. */
export function useFileId(workspaceId: string, path: string) {
  return useQuery({ ...folderQuery(workspaceId, folderOf(path)), select: (found) => idIn(found.entries, path) });
}

function idIn(entries: Entry[], path: string): string | null {
  return entries.find((entry) => entry.path === path)?.id ?? null;
}

export function useVersions(workspaceId: string, fileId: string) {
  return useQuery({
    queryKey: key(workspaceId, "versions", fileId),
    queryFn: () => callTool(workspaceId, "file_versions", { file_id: fileId, limit: 500 }),
  });
}

/** A version never changes, so it is fetched once. */
export function useVersion(workspaceId: string, versionId: string | undefined) {
  return useQuery({
    queryKey: ["version", workspaceId, versionId],
    queryFn: () => callTool(workspaceId, "file_version", { version_id: versionId }),
    enabled: versionId !== undefined,
    staleTime: Number.POSITIVE_INFINITY,
  });
}

export function useDeletedFiles(workspaceId: string) {
  return useQuery({
    queryKey: key(workspaceId, "deleted"),
    queryFn: async () => {
      const answer = await taken(
        api.GET("/api/v1/workspaces/{workspace_id}/deleted-files", {
          params: { path: { workspace_id: workspaceId }, query: { limit: 500 } },
        }),
      );
      return answer.result.files;
    },
  });
}

export interface Asked {
  text: string;
  where: "contents" | "names";
  isCaseSensitive: boolean;
}

export interface Hit {
  path: string;
  line?: number;
  text?: string;
}

export interface Hits {
  hits: Hit[];
  hint: string | null;
}

const MOST_HITS = 200;

export function useSearch(workspaceId: string, asked: Asked) {
  return useQuery({
    queryKey: key(workspaceId, "search", asked),
    queryFn: () => (asked.where === "names" ? byName(workspaceId, asked) : byContent(workspaceId, asked)),
    enabled: asked.text.trim() !== "",
  });
}

async function byContent(workspaceId: string, asked: Asked): Promise<Hits> {
  const found = await callTool(workspaceId, "grep", {
    pattern: asked.text,
    case_sensitive: asked.isCaseSensitive,
    limit: MOST_HITS,
  });
  const hits = found.matches.map((match) => ({
    path: match.path,
    line: match.line_number,
    text: match.line_text,
  }));
  return { hits, hint: found.hint ?? thatIsAll(hits) };
}

async function byName(workspaceId: string, asked: Asked): Promise<Hits> {
  const name = /[*?[]/.test(asked.text) ? asked.text : `*${asked.text}*`;
  const found = await callTool(workspaceId, "find", { name, limit: MOST_HITS });
  const hits = found.matches.map((match) => ({ path: match.path }));
  return { hits, hint: thatIsAll(hits) };
}

function thatIsAll(hits: Hit[]): string | null {
  return hits.length < MOST_HITS ? null : `Only the first ${MOST_HITS} are shown. Ask for something rarer.`;
}

export interface Saving {
  path: string;
  /** What the text began from: what others wrote since is not overwritten. */
  base: Draft["base"];
  text: string;
}

export function useSave(workspaceId: string) {
  const queries = useQueryClient();
  return useMutation({
    mutationFn: (saving: Saving) => saved(workspaceId, saving),
    // A refusal, too, may be because the file is not what it was.
    onSettled: () => forgetFiles(queries, workspaceId),
  });
}

async function saved(workspaceId: string, { path, base: { content, hash }, text }: Saving): Promise<void> {
  if (typeof content === "string" && content !== "") {
    await callTool(workspaceId, "edit", { path, old_string: content, new_string: text, last_read_hash: hash });
    return;
  }
  // An empty file has no passage that could be replaced, and a value that was written as JSON stays one.
  const now = await callTool(workspaceId, "file_info", { path });
  if (now.hash !== hash) throw new Error("The file changed since you began to edit it.");
  await callTool(workspaceId, "write", { path, content: content === "" ? text : JSON.parse(text), overwrite: true });
}

export function useMake(workspaceId: string) {
  return useChange(workspaceId, ({ path, isFolder }: { path: string; isFolder: boolean }) =>
    callTool(workspaceId, isFolder ? "mkdir" : "touch", { path }),
  );
}

export function useDelete(workspaceId: string) {
  return useChange(workspaceId, (path: string) => callTool(workspaceId, "rm", { path }));
}

export function useRestore(workspaceId: string) {
  return useChange(workspaceId, ({ fileId, versionId }: { fileId: string; versionId?: string }) =>
    callTool(workspaceId, "file_restore", { file_id: fileId, ...(versionId ? { version_id: versionId } : {}) }),
  );
}

function useChange<Given, Made>(workspaceId: string, change: (given: Given) => Promise<Made>) {
  const queries = useQueryClient();
  return useMutation({ mutationFn: change, onSuccess: () => forgetFiles(queries, workspaceId) });
}

export function folderOf(path: string): string {
  return path.slice(0, path.lastIndexOf("/")) || "/";
}

export function nameOf(path: string): string {
  return path.slice(path.lastIndexOf("/") + 1) || "/";
}
