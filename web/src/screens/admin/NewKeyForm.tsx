import { useMutation } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import type { Schema } from "../../api/client";
import { Button } from "../../parts/Button";
import { Code } from "../../parts/Code";
import { ErrorNote } from "../../parts/ErrorNote";
import { Field } from "../../parts/Field";
import { Select } from "../../parts/Select";
import { useRefetch } from "./data";

const LASTS = { "30": "30 days", "90": "90 days", "365": "a year", "": "until revoked" };

/** Makes a key and shows it, this once. */
export function NewKeyForm({ make }: { make: (body: Schema["NewKey"]) => Promise<Schema["MadeKey"]> }) {
  const refetch = useRefetch(["keys"]);
  const [name, setName] = useState("");
  const [days, setDays] = useState("90");
  const making = useMutation({
    mutationFn: () => make({ name, expires_in_days: days ? Number(days) : null }),
    onSuccess: () => {
      setName("");
      return refetch();
    },
  });

  function submit(event: FormEvent) {
    event.preventDefault();
    making.mutate();
  }

  return (
    <div className="space-y-3">
      <form onSubmit={submit} className="flex flex-wrap items-end gap-3">
        <div className="min-w-48 grow">
          <Field label="What it is for" placeholder="nightly build" required value={name} onChange={setName} />
        </div>
        <Select label="It lasts" value={days} onChange={setDays} options={LASTS} />
        <Button type="submit" look="primary" busy={making.isPending}>
          Make a key
        </Button>
      </form>
      <ErrorNote error={making.error} />
      {making.data && (
        <div role="status" className="space-y-2 rounded-md bg-good-soft p-3">
          <p className="text-good">Copy it now: it is not shown again.</p>
          <Code label="The new key" text={making.data.secret} />
        </div>
      )}
    </div>
  );
}
