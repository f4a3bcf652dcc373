/** Puts files of a message into the workspace. */
import { ApiError } from "../../api/client";
import { callTool } from "../../api/tools";
import { type ChosenFile, FOLDER, numbered } from "./files";

/** Writes a file of a message into the workspace, beside files of the same name. Returns its path. */
export async function putIntoWorkspace(
  workspaceId: string,
  sessionId: string,
  { name, content }: ChosenFile,
): Promise<string> {
  let path = `${FOLDER}/${name}`;
  for (let number = 2; await isTaken(workspaceId, path); number++) path = `${FOLDER}/${numbered(name, number)}`;
  // A file that somebody else has written there since is not replaced: the call fails.
  await callTool(workspaceId, "write", { path, content }, sessionId);
  return path;
}

async function isTaken(workspaceId: string, path: string): Promise<boolean> {
  try {
    await callTool(workspaceId, "file_info", { path });
    return true;
  } catch (error) {
    if (error instanceof ApiError && error.code === "NOT_FOUND") return false;
    throw error;
  }
}
