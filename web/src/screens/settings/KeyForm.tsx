import { useMutation } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { api, unwrap } from "../../api/client";
import { Button } from "../../components/Button";
import { ErrorNote } from "../../components/ErrorNote";
import { Field } from "../../components/Field";
import { useRefetch } from "./data";

interface KeyFormProps {
  provider: string;
  isStored: boolean;
  /** Whether the provider accepts a custom base URL. */
  hasAddress?: boolean;
}

/** A provider's key. The server checks it before it stores it. */
export function KeyForm({ provider, isStored, hasAddress = true }: KeyFormProps) {
  const refetch = useRefetch(["credentials"]);
  const [secret, setSecret] = useState("");
  const [address, setAddress] = useState("");
  const storing = useMutation({
    mutationFn: () =>
      unwrap(
        api.PUT("/api/v1/credentials/{provider}", {
          params: { path: { provider } },
          body: { secret, base_url: address || null, check: true },
        }),
      ),
    onSuccess: () => {
      setSecret("");
      return refetch();
    },
  });

  function submit(event: FormEvent) {
    event.preventDefault();
    storing.mutate();
  }

  return (
    <form onSubmit={submit} className="space-y-3">
      <div className="flex flex-wrap items-end gap-3">
        <div className="min-w-48 flex-1">
          <Field
            label={`API key for ${provider}`}
            type="password"
            autoComplete="off"
            value={secret}
            onChange={setSecret}
          />
        </div>
        {hasAddress && (
          <div className="min-w-48 flex-1">
            <Field
              label={`Base URL for ${provider} (optional)`}
              type="url"
              value={address}
              onChange={setAddress}
              placeholder="https://models.example.com/v1"
            />
          </div>
        )}
        <Button type="submit" busy={storing.isPending}>
          {isStored ? "Replace" : "Save"}
        </Button>
      </div>
      <ErrorNote error={storing.error} />
    </form>
  );
}
