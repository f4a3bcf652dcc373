/** What people and agents of a workspace are called. */
import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { api, type Schema, taken } from "./client";

export interface Names {
  people: ReadonlyMap<string, string>;
  agents: ReadonlyMap<string, string>;
}

const NOBODY: Names = { people: new Map(), agents: new Map() };

export function useNames(workspaceId: string): Names {
  const path = { workspace_id: workspaceId };
  const members = useQuery({
    queryKey: ["members", workspaceId],
    queryFn: () => taken(api.GET("/api/v1/workspaces/{workspace_id}/members", { params: { path } })),
    staleTime: 60_000,
  });
  const agents = useQuery({
    queryKey: ["agents", workspaceId],
    queryFn: () => taken(api.GET("/api/v1/workspaces/{workspace_id}/agents", { params: { path } })),
    staleTime: 60_000,
  });
  return useMemo(() => {
    if (members.data === undefined || agents.data === undefined) return NOBODY;
    return {
      people: new Map(members.data.items.map((one) => [one.user_id, one.full_name ?? one.email])),
      agents: new Map(agents.data.items.map((one) => [one.id, one.name])),
    };
  }, [members.data, agents.data]);
}

/** Whoever acted: the agent if one did, or else the person who answers for it. */
export function nameOfActor(names: Names, userId: string | null, agentId: string | null): string {
  if (agentId !== null) return names.agents.get(agentId) ?? "an agent that is gone";
  return (userId === null ? undefined : names.people.get(userId)) ?? "someone who is gone";
}

/** Who made a version of a file. */
export function nameOfAuthor(names: Names, author: Schema["Author"]): string {
  if (author.kind === "external") return "another program";
  if (author.kind === "system") return "Toolcrib";
  return nameOfActor(names, author.user_id, author.agent_id);
}
