/** Calling a tool as oneself, with the type of what it results in. */
import { api, type Schema, taken } from "./client";

/** The tools that the UI itself uses. */
interface Results {
  ls: Schema["Listing"];
  read: Schema["Reading"];
  write: Schema["Written"];
  edit: Schema["Edited"];
  rm: Schema["Named"];
  mv: Schema["Moved"];
  mkdir: Schema["Named"];
  touch: Schema["Named"];
  grep: Schema["Matches"];
  find: Schema["FoundFiles"];
  file_info: Schema["FileInfo"];
  file_version: Schema["VersionWithContent"];
  file_versions: Schema["FileVersions"];
  file_restore: Schema["Restored"];
  plan_read: Schema["PlanReading"];
  changes: Schema["Changes"];
  undo: Schema["Undone"];
}

/** The tool's result; `ApiError` if it refused. `sessionId`: of whose past the call is a part. */
export async function callTool<Name extends keyof Results>(
  workspaceId: string,
  tool: Name,
  args: Record<string, unknown>,
  sessionId?: string,
): Promise<Results[Name]> {
  const answer = await taken(
    api.POST("/api/v1/workspaces/{workspace_id}/tools", {
      params: { path: { workspace_id: workspaceId } },
      body: { tool, args, session_id: sessionId ?? null },
    }),
  );
  return (answer as { result: unknown }).result as Results[Name];
}
