import { useMutation } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { ApiError, api, type Schema, taken } from "../../api/client";
import { Button } from "../../parts/Button";
import { ErrorNote } from "../../parts/ErrorNote";
import { Field } from "../../parts/Field";
import { TextArea } from "../../parts/TextArea";
import { useRefetch } from "./data";

const NEW = `trust: guided
toolsets: [workspace]
tool_permissions:
  read: {allowed: true}
  grep: {allowed: true}
  write: {allowed: true, paths: ["docs/**"]}
  edit: {allowed: true, paths: ["docs/**"]}
prompt: |
  You keep the documentation of this project.
`;

interface Props {
  workspaceId: string;
  /** The one to change; without it a new one is made. */
  agent?: Schema["AgentAnswer"];
  onSaved: () => void;
}

/** An agent's name and rules, as YAML. What is wrong with them is said by the server, field by field. */
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
      <Field label="Name" required value={name} onChange={setName} fault={fields.name} />
      <TextArea
        label="Rules (YAML)"
        isCode
        rows={16}
        value={definition}
        onChange={setDefinition}
        hint="A tool that is not named here cannot be used. Without tool_permissions it only reads."
      />
      <ErrorNote error={saving.error} />
      <Button type="submit" look="primary" busy={saving.isPending}>
        {agent ? "Save" : "Add"}
      </Button>
    </form>
  );
}

function save(workspaceId: string, agentId: string | undefined, body: Schema["NewAgent"]) {
  if (agentId === undefined) {
    return taken(
      api.POST("/api/v1/workspaces/{workspace_id}/agents", { params: { path: { workspace_id: workspaceId } }, body }),
    );
  }
  return taken(
    api.PATCH("/api/v1/workspaces/{workspace_id}/agents/{agent_id}", {
      params: { path: { workspace_id: workspaceId, agent_id: agentId } },
      body,
    }),
  );
}
