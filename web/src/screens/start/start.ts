/** The first steps in a workspace: what is done, and what begins the first session. */
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { api, unwrap } from "../../api/client";
import { callTool } from "../../api/tools";
import { fieldsOf, withFields } from "../settings/agentDefinition";
import { useAgents } from "../settings/data";
import { SAMPLE_FILES, SAMPLE_FOLDER } from "./sample";

/** A key of this provider is for searches, not for models. */
const SEARCH = "brave";

const DEFAULT_PRIORITY = 100;

/** The providers for which the person has saved a key. */
export function useOwnProviders() {
  return useQuery({
    queryKey: ["credentials"],
    queryFn: () => unwrap(api.GET("/api/v1/credentials")),
    select: ({ items }) => items.map(({ provider }) => provider).filter((provider) => provider !== SEARCH),
  });
}

export function useProviders() {
  return useQuery({
    queryKey: ["providers"],
    queryFn: () => unwrap(api.GET("/api/v1/providers")),
  });
}

export function useModels(provider: string) {
  return useQuery({
    queryKey: ["models", provider],
    queryFn: () => unwrap(api.GET("/api/v1/providers/{provider}/models", { params: { path: { provider } } })),
    enabled: provider !== "",
    staleTime: 5 * 60_000,
    retry: false,
  });
}

/** The agents that can answer a message: they name a model. */
export function useReadyAgents(workspaceId: string) {
  const agents = useAgents(workspaceId);
  return { ...agents, ready: agents.data?.items.filter((agent) => agent.rules.model) ?? [] };
}

export function useCreateFirstAgent(workspaceId: string) {
  const queries = useQueryClient();
  return useMutation({
    mutationFn: ({ name, provider, model }: { name: string; provider: string; model: string }) =>
      unwrap(
        api.POST("/api/v1/workspaces/{workspace_id}/agents", {
          params: { path: { workspace_id: workspaceId } },
          body: { name, definition: firstDefinition(provider, model) },
        }),
      ),
    onSuccess: () =>
      Promise.all([
        queries.invalidateQueries({ queryKey: [workspaceId, "agents"] }),
        queries.invalidateQueries({ queryKey: ["agents", workspaceId] }),
      ]),
  });
}

/** What can be undone is applied and reviewed afterwards; the agent asks about the rest. */
function firstDefinition(provider: string, model: string): string {
  const empty = fieldsOf("");
  if (empty === null) throw new Error("An empty definition has fields.");
  const capabilities = new Set(["read", "write", "commands", "people"]);
  return withFields("", empty, { provider, model, trust: "review", capabilities });
}

interface FirstMessage {
  agentId: string;
  text: string;
  withSample: boolean;
}

/** Adds the sample, begins a session and sends the message. Returns the session's id. */
export function useSendFirstMessage(workspaceId: string) {
  const path = { workspace_id: workspaceId };
  return useMutation({
    mutationFn: async ({ agentId, text, withSample }: FirstMessage) => {
      if (withSample) await addSample(workspaceId);
      const session = await unwrap(
        api.POST("/api/v1/workspaces/{workspace_id}/sessions", {
          params: { path },
          body: { agent_id: agentId, title: null, mode: "build", directory: "" },
        }),
      );
      await unwrap(
        api.POST("/api/v1/workspaces/{workspace_id}/sessions/{session_id}/messages", {
          params: { path: { ...path, session_id: session.id } },
          body: { text, priority: DEFAULT_PRIORITY },
        }),
      );
      return session.id;
    },
  });
}

async function addSample(workspaceId: string): Promise<void> {
  for (const [name, content] of Object.entries(SAMPLE_FILES))
    await callTool(workspaceId, "write", { path: `${SAMPLE_FOLDER}/${name}`, content, overwrite: true });
}
