import { useMutation } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import type { Schema } from "../../api/client";
import { Button } from "../../components/Button";
import { Code } from "../../components/Code";
import { ErrorNote } from "../../components/ErrorNote";
import { Field } from "../../components/Field";
import { Select } from "../../components/Select";
import { useRefetch } from "./data";

const EXPIRES = { "30": "30 days", "90": "90 days", "365": "1 year", "": "never" };

/** Creates an API key and shows it once. */
export function NewKeyForm({
  create,
}: {
  create: (body: Schema["ApiKeyCreate"]) => Promise<Schema["ApiKeyCreatedOut"]>;
}) {
  const refetch = useRefetch(["keys"]);
  const [name, setName] = useState("");
  const [days, setDays] = useState("90");
  const creation = useMutation({
    mutationFn: () => create({ name, expires_in_days: days ? Number(days) : null }),
    onSuccess: () => {
      setName("");
      return refetch();
    },
  });

  function submit(event: FormEvent) {
    event.preventDefault();
    creation.mutate();
  }

  return (
    <div className="space-y-3">
      <form onSubmit={submit} className="flex flex-wrap items-end gap-3">
        <div className="min-w-48 grow">
          <Field label="Name" placeholder="nightly build" required value={name} onChange={setName} />
        </div>
        <Select label="Expires" value={days} onChange={setDays} options={EXPIRES} />
        <Button type="submit" variant="primary" busy={creation.isPending}>
          Create key
        </Button>
      </form>
      <ErrorNote error={creation.error} />
      {creation.data && (
        <div role="status" className="space-y-2 rounded-md bg-good-soft p-3">
          <p className="text-good">Copy the key now. It is not shown again.</p>
          <Code label="New key" text={creation.data.secret} />
        </div>
      )}
    </div>
  );
}
