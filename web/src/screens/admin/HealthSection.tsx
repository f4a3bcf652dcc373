import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { api, type Schema, taken } from "../../api/client";
import type { ScreenProps } from "../../app/screens";
import { Badge, type Tone } from "../../parts/Badge";
import { Card } from "../../parts/Card";
import { ErrorNote } from "../../parts/ErrorNote";
import { Loading } from "../../parts/Loading";
import { bytes, days } from "./amounts";

export function HealthSection({ workspaceId }: ScreenProps) {
  return (
    <>
      <Usage workspaceId={workspaceId} />
      <Health />
    </>
  );
}

function Usage({ workspaceId }: ScreenProps) {
  const found = useQuery({
    queryKey: [workspaceId, "usage"],
    queryFn: () =>
      taken(api.GET("/api/v1/workspaces/{workspace_id}/usage", { params: { path: { workspace_id: workspaceId } } })),
    staleTime: 60_000,
  });
  if (found.isPending) return <Loading what="usage" />;
  if (found.error) return <ErrorNote error={found.error} />;
  const { usage, limits } = found.data;
  return (
    <Card title="What this workspace takes up">
      <Facts>
        <Fact name="Files">{count(usage.files)}</Fact>
        <Fact name="Deleted, can be restored">{count(usage.deleted_files)}</Fact>
        <Fact name="Versions">{count(usage.versions)}</Fact>
        <Fact name="History on disk">
          {bytes(usage.stored_bytes)} <span className="text-muted">for {bytes(usage.content_bytes)} of content</span>
        </Fact>
        <Fact name="Trash">
          {bytes(usage.trash_bytes)} <span className="text-muted">of {bytes(limits.trash_bytes)}</span>
          <Meter part={usage.trash_bytes} whole={limits.trash_bytes} label="The trash is filled" />
        </Fact>
        <Fact name="Sessions">{count(usage.sessions)}</Fact>
        <Fact name="Calls">{count(usage.calls)}</Fact>
        <Fact name="Not on disk yet">{count(usage.pending)}</Fact>
      </Facts>
      <h3 className="mt-5 mb-2 font-semibold">Limits of this server</h3>
      <Facts>
        <Fact name="Largest file in the history">{bytes(limits.max_file_bytes)}</Fact>
        <Fact name="Largest request">{bytes(limits.max_request_bytes)}</Fact>
        <Fact name="Trash is kept">{days(limits.trash_days)}</Fact>
        <Fact name="Versions are kept">
          {limits.keep_versions_days === null ? "for ever" : days(limits.keep_versions_days)}
        </Fact>
        <Fact name="An approval waits">{days(limits.approval_seconds / 86_400)}</Fact>
      </Facts>
    </Card>
  );
}

function Health() {
  const status = useQuery({ queryKey: ["status"], queryFn: () => taken(api.GET("/api/v1/status")) });
  if (status.isPending) return <Loading what="health" />;
  if (status.error) return <ErrorNote error={status.error} />;
  const { isolation, node, version } = status.data;
  return (
    <Card title="The server" aside={<Badge tone="good">answers</Badge>}>
      <Facts>
        <Fact name="Node">{node}</Fact>
        <Fact name="Version">{version}</Fact>
        <Fact name="Commands run">
          <Badge tone={toneOf(isolation)}>{isolation.offered ? `isolated by ${isolation.level}` : "not at all"}</Badge>
        </Fact>
        <Fact name="View of a command">{isolation.overlay ? "copy-on-write" : "a copy of the tree"}</Fact>
      </Facts>
      <Gaps gaps={isolation.gaps} />
      <details className="mt-4">
        <summary className="text-muted">{isolation.held.length} attempted escapes were held when it started</summary>
        <ul className="mt-2 list-disc space-y-0.5 pl-5 text-xs">
          {isolation.held.map((one) => (
            <li key={one}>{one}</li>
          ))}
        </ul>
      </details>
    </Card>
  );
}

function toneOf(isolation: Schema["IsolationAnswer"]): Tone {
  if (!isolation.offered) return "bad";
  return isolation.level === "namespaces" ? "good" : "warn";
}

function Gaps({ gaps }: { gaps: Schema["GapAnswer"][] }) {
  if (gaps.length === 0) return null;
  return (
    <>
      <h3 className="mt-5 mb-2 font-semibold">What does not hold here</h3>
      <ul className="space-y-2">
        {gaps.map((gap) => (
          <li key={gap.name} className="rounded-md border border-line p-3">
            <div className="flex flex-wrap items-center gap-2">
              <span className="font-medium">{gap.name}</span>
              {gap.open ? <Badge tone="bad">open</Badge> : <Badge>made good otherwise</Badge>}
            </div>
            <p>{gap.fact}</p>
            <p className="text-muted">{gap.remedy}</p>
          </li>
        ))}
      </ul>
    </>
  );
}

function Facts({ children }: { children: ReactNode }) {
  return <dl className="grid grid-cols-2 gap-x-6 gap-y-3 md:grid-cols-4">{children}</dl>;
}

function Fact({ name, children }: { name: string; children: ReactNode }) {
  return (
    <div>
      <dt className="text-xs text-muted">{name}</dt>
      <dd className="font-medium">{children}</dd>
    </div>
  );
}

function Meter({ part, whole, label }: { part: number; whole: number; label: string }) {
  return (
    <meter aria-label={label} className="mt-1 block h-2 w-full" min={0} max={whole} high={whole * 0.8} value={part} />
  );
}

function count(many: number): string {
  return many.toLocaleString("en");
}
