/** Queries and mutations of the Files screen. */
import { type QueryClient, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { api, type Schema, unwrap } from "../../api/client";
import { callTool } from "../../api/tools";
import type { Draft } from "./drafts";

export type Entry = Schema["LsEntry"];
export type FileVersion = Schema["VersionEntry"];
export type HistoryFile = Schema["HistoryEntry"];

/** Maximum number of entries shown per folder. */
export const MAX_ENTRIES = 2_000;
const MAX_LINES = 1_000_000;

const key = (workspaceId: string, ...rest: unknown[]) => ["files", workspaceId, ...rest] as const;

/** Invalidates all queries about files: trees, contents and histories. */
export function invalidateFiles(queries: QueryClient, workspaceId: string): Promise<void> {
  return queries.invalidateQueries({ queryKey: key(workspaceId) });
}

export function folderQuery(workspaceId: string, path: string) {
  return {
    queryKey: key(workspaceId, "folder", path),
    queryFn: () => callTool(workspaceId, "ls", { path, limit: MAX_ENTRIES }),
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
    queryFn: () => callTool(workspaceId, "read", { path, limit: MAX_LINES }),
  });
}

/** Returns the id of a file, from `ls` of its folder; null for untracked files. */
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
      const response = await unwrap(
        api.GET("/api/v1/workspaces/{workspace_id}/deleted-files", {
          params: { path: { workspace_id: workspaceId }, query: { limit: 500 } },
        }),
      );
      return response.result.files;
    },
  });
}

export interface SearchQuery {
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

const MAX_HITS = 200;

export function useSearch(workspaceId: string, query: SearchQuery) {
  return useQuery({
    queryKey: key(workspaceId, "search", query),
    queryFn: () => (query.where === "names" ? byName(workspaceId, query) : byContent(workspaceId, query)),
    enabled: query.text.trim() !== "",
  });
}

async function byContent(workspaceId: string, query: SearchQuery): Promise<Hits> {
  const found = await callTool(workspaceId, "grep", {
    pattern: query.text,
    case_sensitive: query.isCaseSensitive,
    limit: MAX_HITS,
  });
  const hits = found.matches.map((match) => ({
    path: match.path,
    line: match.line_number,
    text: match.line_text,
  }));
  return { hits, hint: found.hint ?? limitHint(hits) };
}

async function byName(workspaceId: string, query: SearchQuery): Promise<Hits> {
  const name = /[*?[]/.test(query.text) ? query.text : `*${query.text}*`;
  const found = await callTool(workspaceId, "find", { name, limit: MAX_HITS });
  const hits = found.matches.map((match) => ({ path: match.path }));
  return { hits, hint: limitHint(hits) };
}

function limitHint(hits: Hit[]): string | null {
  return hits.length < MAX_HITS ? null : `Only the first ${MAX_HITS} results are shown. Narrow your search.`;
}

export interface SaveRequest {
  path: string;
  /** The version that was edited. The server rejects the save if the file has changed since. */
  base: Draft["base"];
  text: string;
}

export function useSave(workspaceId: string) {
  const queries = useQueryClient();
  return useMutation({
    mutationFn: (request: SaveRequest) => saveFile(workspaceId, request),
    // Also after an error: the file may have changed.
    onSettled: () => invalidateFiles(queries, workspaceId),
  });
}

/** Saves a file. Throws if it has changed since it was read. */
export async function saveFile(
  workspaceId: string,
  { path, base: { content, hash }, text }: SaveRequest,
): Promise<void> {
  if (typeof content === "string" && content !== "") {
    await callTool(workspaceId, "edit", { path, old_string: content, new_string: text, last_read_hash: hash });
    return;
  }
  // `edit` cannot replace an empty string, and a JSON value stays a JSON value.
  const now = await callTool(workspaceId, "file_info", { path });
  if (now.hash !== hash) throw new Error("The file changed while you were editing.");
  await callTool(workspaceId, "write", { path, content: content === "" ? text : JSON.parse(text), overwrite: true });
}

export function useCreatePath(workspaceId: string) {
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
  return useMutation({ mutationFn: change, onSuccess: () => invalidateFiles(queries, workspaceId) });
}

export function folderOf(path: string): string {
  return path.slice(0, path.lastIndexOf("/")) || "/";
}

export function nameOf(path: string): string {
  return path.slice(path.lastIndexOf("/") + 1) || "/";
}
