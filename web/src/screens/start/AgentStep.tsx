import { type FormEvent, useState } from "react";
import { Link } from "wouter";
import { Button } from "../../components/Button";
import { ErrorNote } from "../../components/ErrorNote";
import { Field } from "../../components/Field";
import { Select } from "../../components/Select";
import { useCreateFirstAgent, useModels } from "./start";

/** The second step: a model and a name. The rest has good defaults. */
export function AgentStep({ workspaceId, providers }: { workspaceId: string; providers: readonly string[] }) {
  const [chosen, setChosen] = useState<string | null>(null);
  const [model, setModel] = useState("");
  const [name, setName] = useState("assistant");
  const provider = chosen ?? providers[0] ?? "";
  const models = useModels(provider);
  const create = useCreateFirstAgent(workspaceId);
  const known = models.data?.items ?? [];
  const selected = model || known[0]?.id || "";

  function submit(event: FormEvent) {
    event.preventDefault();
    create.mutate({ name, provider, model: selected });
  }

  return (
    <form onSubmit={submit} className="space-y-4">
      <div className="grid gap-4 sm:grid-cols-2">
        {providers.length > 1 && (
          <Select
            label="Provider"
            value={provider}
            onChange={(next) => {
              setChosen(next);
              setModel("");
            }}
            options={Object.fromEntries(providers.map((one) => [one, one]))}
          />
        )}
        {known.length > 0 ? (
          <Select
            label="Model"
            value={selected}
            onChange={setModel}
            options={Object.fromEntries(known.map((one) => [one.id, one.name ?? one.id]))}
          />
        ) : (
          <Field label="Model" required value={model} onChange={setModel} hint="The provider's name of the model." />
        )}
        <Field label="Name" required value={name} onChange={setName} />
      </div>
      <p className="text-sm text-muted">
        It reads and changes files and runs commands in a sandbox. You review its changes, and it asks before what
        cannot be undone. Everything else is in{" "}
        <Link href={`/w/${workspaceId}/settings/agents`} className="text-accent underline">
          Settings
        </Link>
        .
      </p>
      <ErrorNote error={create.error} />
      <Button type="submit" variant="primary" busy={create.isPending} disabled={selected === ""}>
        Create agent
      </Button>
    </form>
  );
}
