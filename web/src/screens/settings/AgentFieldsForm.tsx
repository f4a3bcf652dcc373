/** The fields of an agent: model, instructions, what it may do, when it asks, and its budget. */
import { useQuery } from "@tanstack/react-query";
import { useId } from "react";
import { api, type Schema, unwrap } from "../../api/client";
import { Badge } from "../../components/Badge";
import { Field } from "../../components/Field";
import { Select } from "../../components/Select";
import { TextArea } from "../../components/TextArea";
import { type AgentFields, CAPABILITIES } from "./agentDefinition";

const TRUST: Record<Schema["TrustLevel"], string> = {
  supervised: "Supervised: asks before every call",
  guided: "Guided: asks before dangerous calls",
  review: "Review: asks only about what cannot be undone; you review the changes",
  autonomous: "Autonomous: never asks",
};

interface Props {
  fields: AgentFields;
  onChange: (changed: Partial<AgentFields>) => void;
}

export function AgentFieldsForm({ fields, onChange }: Props) {
  return (
    <div className="space-y-6">
      <ModelFields fields={fields} onChange={onChange} />
      <TextArea
        label="Instructions"
        rows={4}
        value={fields.prompt}
        onChange={(prompt) => onChange({ prompt })}
        hint="What the agent is for, and how your team works."
      />
      <Capabilities fields={fields} onChange={onChange} />
      <Select
        label="Trust"
        value={fields.trust}
        onChange={(trust) => onChange({ trust: trust as Schema["TrustLevel"] })}
        options={TRUST}
      />
      <Field
        label="Budget per day (US dollars)"
        inputMode="decimal"
        value={fields.dailyCost}
        onChange={(dailyCost) => onChange({ dailyCost })}
        hint="Optional. A run stops before the turn that would exceed it."
      />
    </div>
  );
}

function ModelFields({ fields, onChange }: Props) {
  const id = useId();
  const credentials = useQuery({
    queryKey: ["credentials"],
    queryFn: () => unwrap(api.GET("/api/v1/credentials")),
  });
  const models = useQuery({
    queryKey: ["models", fields.provider],
    queryFn: () =>
      unwrap(api.GET("/api/v1/providers/{provider}/models", { params: { path: { provider: fields.provider } } })),
    enabled: fields.provider !== "",
    staleTime: 5 * 60_000,
    retry: false,
  });
  const providers = new Set([...(credentials.data?.items ?? []).map(({ provider }) => provider), fields.provider]);
  providers.delete("brave");
  providers.delete("");
  return (
    <div className="grid gap-4 sm:grid-cols-2">
      <Select
        label="Provider"
        value={fields.provider}
        onChange={(provider) => onChange({ provider, model: "" })}
        options={{ "": "None: for programs only", ...Object.fromEntries([...providers].map((one) => [one, one])) }}
      />
      <div>
        <Field
          label="Model"
          list={id}
          value={fields.model}
          disabled={fields.provider === ""}
          onChange={(model) => onChange({ model })}
          hint={fields.provider === "" ? "Providers appear here once you have saved a key in Models." : undefined}
        />
        <datalist id={id}>
          {models.data?.items.map((one) => (
            <option key={one.id} value={one.id}>
              {one.name}
            </option>
          ))}
        </datalist>
      </div>
    </div>
  );
}

function Capabilities({ fields, onChange }: Props) {
  const id = useId();

  function toggle(name: string): void {
    const capabilities = new Set(fields.capabilities);
    if (!capabilities.delete(name)) capabilities.add(name);
    onChange({ capabilities });
  }

  return (
    <fieldset>
      <legend className="mb-1 text-sm font-medium">Tools</legend>
      <ul className="divide-y divide-line overflow-hidden rounded-lg border border-line">
        {CAPABILITIES.map(({ name, label, about }) => (
          <li key={name} className="px-3 py-2 has-checked:bg-accent-soft">
            <label className="flex cursor-pointer items-start gap-3">
              <input
                type="checkbox"
                aria-label={label}
                aria-describedby={`${id}-${name}`}
                className="mt-1 size-4"
                checked={fields.capabilities.has(name)}
                onChange={() => toggle(name)}
              />
              <span className="min-w-0">
                <span className="block font-medium">{label}</span>
                <span id={`${id}-${name}`} className="block text-xs text-muted">
                  {about}
                </span>
              </span>
            </label>
            {name === "write" && fields.capabilities.has(name) && (
              <div className="mt-2 ml-7">
                <Field
                  label="Only these paths"
                  value={fields.paths}
                  onChange={(paths) => onChange({ paths })}
                  placeholder="docs/**, src/**/*.py"
                  hint="Empty: the whole workspace."
                />
              </div>
            )}
            {name === "commands" && fields.capabilities.has(name) && (
              <div className="mt-2 ml-7">
                <Field
                  label="Hosts that commands may contact"
                  value={fields.hosts}
                  onChange={(hosts) => onChange({ hosts })}
                  placeholder="pypi.org, *.example.com"
                />
              </div>
            )}
          </li>
        ))}
      </ul>
      {fields.otherTools.length > 0 && (
        <p className="mt-2 flex flex-wrap gap-2 text-xs text-muted">
          Also allowed, in the YAML:
          {fields.otherTools.map((tool) => (
            <Badge key={tool}>{tool}</Badge>
          ))}
        </p>
      )}
    </fieldset>
  );
}
