import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { api, type Schema, unwrap } from "../../api/client";
import { Badge } from "../../components/Badge";
import { Button } from "../../components/Button";
import { Card } from "../../components/Card";
import { ConfirmButton } from "../../components/ConfirmButton";
import { ErrorNote } from "../../components/ErrorNote";
import { RelativeTime } from "../../components/RelativeTime";
import { Skeleton } from "../../components/Skeleton";
import { Table } from "../../components/Table";
import { useRefetch } from "./data";
import { KeyForm } from "./KeyForm";

export function ModelsSection() {
  const providers = useQuery({ queryKey: ["providers"], queryFn: () => unwrap(api.GET("/api/v1/providers")) });
  const stored = useQuery({ queryKey: ["credentials"], queryFn: () => unwrap(api.GET("/api/v1/credentials")) });
  if (providers.isPending || stored.isPending) return <Skeleton what="providers" />;
  if (providers.error) return <ErrorNote error={providers.error} />;
  if (stored.error) return <ErrorNote error={stored.error} />;
  return (
    <>
      {providers.data.items.map((provider) => (
        <ProviderCard
          key={provider}
          provider={provider}
          stored={stored.data.items.find((one) => one.provider === provider)}
        />
      ))}
      <SearchCard stored={stored.data.items.find((one) => one.provider === SEARCH)} />
    </>
  );
}

/** The search engine for which users can store their own key. */
const SEARCH = "brave";

function SearchCard({ stored }: { stored: Schema["ProviderCredentialsOut"] | undefined }) {
  return (
    <Card
      title="Web search: Brave"
      aside={stored ? <Badge tone="good">configured</Badge> : <Badge>not configured</Badge>}
    >
      <div className="space-y-4">
        <p className="text-muted">Your searches and your agents' searches use your own key instead of the server's.</p>
        {stored && (
          <div className="flex flex-wrap items-center gap-2">
            <p className="grow text-muted">
              Saved <RelativeTime time={stored.updated_at} />.
            </p>
            <RemoveKeyButton
              provider={SEARCH}
              consequence="Your searches use the server's search engines again, if it has any."
            />
          </div>
        )}
        <KeyForm provider={SEARCH} isStored={stored !== undefined} hasAddress={false} />
      </div>
    </Card>
  );
}

function RemoveKeyButton({ provider, consequence }: { provider: string; consequence: string }) {
  const refetch = useRefetch(["credentials"]);
  return (
    <ConfirmButton
      label={`Remove key for ${provider}`}
      consequence={consequence}
      act={async () => {
        await unwrap(api.DELETE("/api/v1/credentials/{provider}", { params: { path: { provider } } }));
        await refetch();
      }}
    />
  );
}

function ProviderCard({
  provider,
  stored,
}: {
  provider: string;
  stored: Schema["ProviderCredentialsOut"] | undefined;
}) {
  return (
    <Card title={provider} aside={stored ? <Badge tone="good">configured</Badge> : <Badge>not configured</Badge>}>
      <div className="space-y-4">
        {stored && <Stored provider={provider} stored={stored} />}
        <KeyForm provider={provider} isStored={stored !== undefined} />
      </div>
    </Card>
  );
}

function Stored({ provider, stored }: { provider: string; stored: Schema["ProviderCredentialsOut"] }) {
  const [isListing, setIsListing] = useState(false);
  return (
    <>
      <div className="flex flex-wrap items-center gap-2">
        <p className="grow text-muted">
          Saved <RelativeTime time={stored.updated_at} />
          {stored.base_url && (
            <>
              , at <code className="wrap-anywhere">{stored.base_url}</code>
            </>
          )}
          .
        </p>
        <Button small onClick={() => setIsListing(true)}>
          List models of {provider}
        </Button>
        <RemoveKeyButton
          provider={provider}
          consequence="Your agents can no longer use its models, in any workspace."
        />
      </div>
      {isListing && <Models provider={provider} />}
    </>
  );
}

function Models({ provider }: { provider: string }) {
  const models = useQuery({
    queryKey: ["models", provider],
    queryFn: () => unwrap(api.GET("/api/v1/providers/{provider}/models", { params: { path: { provider } } })),
  });
  if (models.isPending) return <Skeleton what="models" />;
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
          cell: (model) => (model.context_window ? `${model.context_window.toLocaleString("en")} tokens` : "unknown"),
        },
      ]}
    />
  );
}
