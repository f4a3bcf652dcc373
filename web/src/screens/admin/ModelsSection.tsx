import { useMutation, useQuery } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { api, type Schema, taken } from "../../api/client";
import { Ago } from "../../parts/Ago";
import { Badge } from "../../parts/Badge";
import { Button } from "../../parts/Button";
import { Card } from "../../parts/Card";
import { ConfirmButton } from "../../parts/ConfirmButton";
import { ErrorNote } from "../../parts/ErrorNote";
import { Field } from "../../parts/Field";
import { Loading } from "../../parts/Loading";
import { Table } from "../../parts/Table";
import { useRefetch } from "./data";

export function ModelsSection() {
  const providers = useQuery({ queryKey: ["providers"], queryFn: () => taken(api.GET("/api/v1/providers")) });
  const stored = useQuery({ queryKey: ["credentials"], queryFn: () => taken(api.GET("/api/v1/credentials")) });
  if (providers.isPending || stored.isPending) return <Loading what="providers" />;
  if (providers.error) return <ErrorNote error={providers.error} />;
  if (stored.error) return <ErrorNote error={stored.error} />;
  return (
    <>
      {providers.data.map((provider) => (
        <ProviderCard
          key={provider}
          provider={provider}
          stored={stored.data.items.find((one) => one.provider === provider)}
        />
      ))}
    </>
  );
}

function ProviderCard({ provider, stored }: { provider: string; stored: Schema["CredentialsAnswer"] | undefined }) {
  return (
    <Card title={provider} aside={stored ? <Badge tone="good">set up</Badge> : <Badge>not set up</Badge>}>
      <div className="space-y-4">
        {stored && <Stored provider={provider} stored={stored} />}
        <AccessForm provider={provider} isStored={stored !== undefined} />
      </div>
    </Card>
  );
}

function Stored({ provider, stored }: { provider: string; stored: Schema["CredentialsAnswer"] }) {
  const refetch = useRefetch(["credentials"]);
  const [isListing, setIsListing] = useState(false);
  return (
    <>
      <div className="flex flex-wrap items-center gap-2">
        <p className="grow text-muted">
          Stored <Ago time={stored.updated_at} />
          {stored.base_url && (
            <>
              , at <code className="wrap-anywhere">{stored.base_url}</code>
            </>
          )}
          .
        </p>
        <Button small onClick={() => setIsListing(true)}>
          List the models of {provider}
        </Button>
        <ConfirmButton
          label={`Forget ${provider}`}
          consequence="Your agents can no longer use its models, here and in every other workspace."
          act={async () => {
            await taken(api.DELETE("/api/v1/credentials/{provider}", { params: { path: { provider } } }));
            await refetch();
          }}
        />
      </div>
      {isListing && <Models provider={provider} />}
    </>
  );
}

function Models({ provider }: { provider: string }) {
  const models = useQuery({
    queryKey: ["models", provider],
    queryFn: () => taken(api.GET("/api/v1/providers/{provider}/models", { params: { path: { provider } } })),
  });
  if (models.isPending) return <Loading what="models" />;
  if (models.error) return <ErrorNote error={models.error} />;
  return (
    <Table
      label={`Models of ${provider}`}
      rows={models.data.items}
      keyOf={(model) => model.id}
      columns={[
        { title: "Model", cell: (model) => <code className="text-xs">{model.id}</code> },
        {
          title: "Tools",
          cell: (model) => (model.supports_tools ? <Badge tone="good">yes</Badge> : <Badge>no</Badge>),
        },
        {
          title: "Context",
          isRight: true,
          cell: (model) => (model.context_window ? `${model.context_window.toLocaleString("en")} tokens` : "not told"),
        },
      ]}
    />
  );
}

function AccessForm({ provider, isStored }: { provider: string; isStored: boolean }) {
  const refetch = useRefetch(["credentials"]);
  const [secret, setSecret] = useState("");
  const [address, setAddress] = useState("");
  const storing = useMutation({
    mutationFn: () =>
      taken(
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
        <div className="min-w-48 grow">
          <Field
            label={`API key of ${provider}`}
            type="password"
            autoComplete="off"
            value={secret}
            onChange={setSecret}
          />
        </div>
        <div className="min-w-48 grow">
          <Field
            label={`Address of ${provider}, if not its own`}
            type="url"
            value={address}
            onChange={setAddress}
            placeholder="https://models.example.com/v1"
          />
        </div>
        <Button type="submit" busy={storing.isPending}>
          {isStored ? "Replace" : "Check and store"}
        </Button>
      </div>
      <ErrorNote error={storing.error} />
    </form>
  );
}
