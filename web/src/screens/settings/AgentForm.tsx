import { useMutation } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { ApiError, api, type Schema, unwrap } from "../../api/client";
import { Button } from "../../components/Button";
import { ErrorNote } from "../../components/ErrorNote";
import { Field } from "../../components/Field";
import { TextArea } from "../../components/TextArea";
import { useRefetch } from "./data";

const NEW = `trust: guided
toolsets: [workspace]
tool_permissions:
  read: {allowed: true}
  grep: {allowed: true}
  write: {allowed: true, paths: ["docs/**"]}
  edit: {allowed: true, paths: ["docs/**"]}
prompt: |
  You maintain the documentation of this project.
`;

interface Props {
  workspaceId: string;
  /** The agent to edit; without it, the form creates one. */
  agent?: Schema["AgentOut"];
  onSaved: () => void;
}

/** The form for an agent's name and YAML definition. The server reports errors per field. */
export function AgentForm({ workspaceId, agent, onSaved }: Props) {
  const refetch = useRefetch([workspaceId, "agents"]);
  const [name, setName] = useState(agent?.name ?? "");
  const [definition, setDefinition] = useState(agent?.definition ?? NEW);
  const saving = useMutation({
    mutationFn: () => save(workspaceId, agent?.id, { name, definition }),
    onSuccess: async () => {
      await refetch();
      onSaved();
    },
  });
  const fields = saving.error instanceof ApiError ? saving.error.fields : {};

  function submit(event: FormEvent) {
    event.preventDefault();
    saving.mutate();
  }

  return (
    <form onSubmit={submit} className="space-y-4">
      <Field label="Name" required value={name} onChange={setName} error={fields.name} />
      <TextArea
        label="Definition (YAML)"
        isCode
        rows={16}
        value={definition}
        onChange={setDefinition}
        hint="Tools that are not listed are denied. Without tool_permissions the agent is read-only."
      />
      <ErrorNote error={saving.error} />
      <Button type="submit" variant="primary" busy={saving.isPending}>
        {agent ? "Save" : "Add"}
      </Button>
    </form>
  );
}

function save(workspaceId: string, agentId: string | undefined, body: Schema["AgentCreate"]) {
  if (agentId === undefined) {
    return unwrap(
      api.POST("/api/v1/workspaces/{workspace_id}/agents", { params: { path: { workspace_id: workspaceId } }, body }),
    );
  }
  return unwrap(
    api.PATCH("/api/v1/workspaces/{workspace_id}/agents/{agent_id}", {
      params: { path: { workspace_id: workspaceId, agent_id: agentId } },
      body,
    }),
  );
}
