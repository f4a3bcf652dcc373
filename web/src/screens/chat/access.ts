/** Whether the page offers controls: not to viewers, and not on a read-only link. The server checks every request. */
import { useQueryParameters } from "../../app/query";
import { useWorkspace } from "../../app/workspaces";

const READ_ONLY = "readonly";

export function useMayAct(workspaceId: string): boolean {
  const workspace = useWorkspace(workspaceId);
  const isLinked = useIsReadOnlyLink();
  // Until the role is known, nothing is offered that might not work.
  return !isLinked && workspace.data !== undefined && workspace.data.role !== "viewer";
}

export function useIsReadOnlyLink(): boolean {
  const [at] = useQueryParameters();
  return at.has(READ_ONLY);
}

/** The address of a session for other members, who read it and cannot change it by mistake. */
export function readOnlyLink(workspaceId: string, sessionId: string): string {
  return `${location.origin}/w/${workspaceId}/chat/${sessionId}?${READ_ONLY}`;
}
