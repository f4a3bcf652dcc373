/** Names of the members and agents of a workspace. */
import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { api, type Schema, unwrap } from "./client";

export interface Names {
  people: ReadonlyMap<string, string>;
  agents: ReadonlyMap<string, string>;
}

const NO_NAMES: Names = { people: new Map(), agents: new Map() };

export function useNames(workspaceId: string): Names {
  const path = { workspace_id: workspaceId };
  const members = useQuery({
    queryKey: ["members", workspaceId],
    queryFn: () => unwrap(api.GET("/api/v1/workspaces/{workspace_id}/members", { params: { path } })),
    staleTime: 60_000,
  });
  const agents = useQuery({
    queryKey: ["agents", workspaceId],
    queryFn: () => unwrap(api.GET("/api/v1/workspaces/{workspace_id}/agents", { params: { path } })),
    staleTime: 60_000,
  });
  return useMemo(() => {
    if (members.data === undefined || agents.data === undefined) return NO_NAMES;
    return {
      people: new Map(members.data.items.map((one) => [one.user_id, one.full_name ?? one.email])),
      agents: new Map(agents.data.items.map((one) => [one.id, one.name])),
    };
  }, [members.data, agents.data]);
}

/** Returns the name of the agent, or of the user without an agent. */
export function nameOfActor(names: Names, userId: string | null, agentId: string | null): string {
  if (agentId !== null) return names.agents.get(agentId) ?? "deleted agent";
  return (userId === null ? undefined : names.people.get(userId)) ?? "former member";
}

/** Returns the name of the author of a file version. */
export function nameOfAuthor(
  names: Names,
  author: Pick<Schema["VersionAuthor"], "kind" | "user_id" | "agent_id">,
): string {
  if (author.kind === "external") return "another program";
  if (author.kind === "system") return "Toolcrib";
  return nameOfActor(names, author.user_id, author.agent_id);
}
