/** Calls tools as the current user, with typed results. */
import { api, type Schema, unwrap } from "./client";

/** The tools that the UI itself uses. */
interface Results {
  ls: Schema["LsResult"];
  read: Schema["ReadResult"];
  write: Schema["WriteResult"];
  edit: Schema["EditResult"];
  rm: Schema["PathResult"];
  mv: Schema["MvResult"];
  mkdir: Schema["PathResult"];
  touch: Schema["PathResult"];
  grep: Schema["GrepResult"];
  find: Schema["FindResult"];
  file_info: Schema["FileInfoResult"];
  file_version: Schema["FileVersionResult"];
  file_versions: Schema["FileVersionsResult"];
  file_restore: Schema["FileRestoreResult"];
  plan_read: Schema["PlanReadResult"];
  changes: Schema["ChangesResult"];
  undo: Schema["UndoResult"];
}

/**
 * Calls a tool and returns its result. Throws `ApiError` on failure. The call belongs to the history of `sessionId`, and is
 * the person's own there too: the UI does what the person clicked, and not as the session's agent.
 */
export async function callTool<Name extends keyof Results>(
  workspaceId: string,
  tool: Name,
  args: Record<string, unknown>,
  sessionId?: string,
): Promise<Results[Name]> {
  const response = await unwrap(
    api.POST("/api/v1/workspaces/{workspace_id}/tools", {
      params: { path: { workspace_id: workspaceId } },
      body: { tool, args, session_id: sessionId ?? null, as_person: true },
    }),
  );
  return (response as { result: unknown }).result as Results[Name];
}
