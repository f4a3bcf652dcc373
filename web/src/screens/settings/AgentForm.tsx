import { useMutation } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { ApiError, api, type Schema, unwrap } from "../../api/client";
import { Button } from "../../components/Button";
import { ErrorNote } from "../../components/ErrorNote";
import { Field } from "../../components/Field";
import { TextArea } from "../../components/TextArea";
import { AgentFieldsForm } from "./AgentFieldsForm";
import { fieldsOf, withFields } from "./agentDefinition";
import { useRefetch } from "./data";
import { LiveExplanation } from "./LiveExplanation";

const NEW = `trust: review
toolsets: [workspace]
tool_permissions:
  read: {allowed: true}
  ls: {allowed: true}
  grep: {allowed: true}
  glob: {allowed: true}
  find: {allowed: true}
  file_info: {allowed: true}
`;

interface Props {
  workspaceId: string;
  /** The agent to edit; without it, the form creates one. */
  agent?: Schema["AgentOut"];
  onSaved: () => void;
}

type View = "form" | "yaml";

/** An agent's name and definition, as a form or as YAML: two views of one text. The server reports errors per field. */
export function AgentForm({ workspaceId, agent, onSaved }: Props) {
  const refetch = useRefetch([workspaceId, "agents"]);
  const [name, setName] = useState(agent?.name ?? "");
  const [definition, setDefinition] = useState(agent?.definition ?? NEW);
  // Only the YAML can show what the form has no field for.
  const shown = fieldsOf(definition);
  const [view, setView] = useState<View>("form");
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
      <ViewChoice view={view} onChange={setView} />
      {view === "yaml" && (
        <TextArea
          label="Definition (YAML)"
          isCode
          rows={16}
          value={definition}
          onChange={setDefinition}
          hint="Tools that are not listed are denied. Without tool_permissions the agent is read-only."
        />
      )}
      {view === "form" && shown && (
        <AgentFieldsForm fields={shown} onChange={(changed) => setDefinition(withFields(definition, shown, changed))} />
      )}
      {view === "form" && shown === null && (
        <p className="rounded-md bg-sunken px-3 py-2 text-muted">
          This definition has something that the form cannot show, such as phases or an error. Edit it as YAML.
        </p>
      )}
      {shown && (
        <LiveExplanation workspaceId={workspaceId} agentId={agent?.id} definition={definition} fields={shown} />
      )}
      <ErrorNote error={saving.error} />
      <Button type="submit" variant="primary" busy={saving.isPending}>
        {agent ? "Save" : "Add"}
      </Button>
    </form>
  );
}

function ViewChoice({ view, onChange }: { view: View; onChange: (view: View) => void }) {
  const views: Record<View, string> = { form: "Form", yaml: "YAML" };
  return (
    <div role="group" aria-label="View of the definition" className="inline-flex rounded-lg bg-sunken p-0.5">
      {Object.entries(views).map(([name, label]) => (
        <button
          key={name}
          type="button"
          aria-pressed={view === name}
          onClick={() => onChange(name as View)}
          className="min-h-7 rounded-md px-3 text-sm text-muted aria-pressed:bg-surface aria-pressed:font-medium aria-pressed:text-ink aria-pressed:shadow-card"
        >
          {label}
        </button>
      ))}
    </div>
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
