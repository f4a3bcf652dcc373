import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { api, type Schema, unwrap } from "../../api/client";
import type { ScreenProps } from "../../app/screenProps";
import { Badge, type Tone } from "../../components/Badge";
import { Card } from "../../components/Card";
import { ErrorNote } from "../../components/ErrorNote";
import { Skeleton } from "../../components/Skeleton";
import { bytes, days } from "./amounts";

export function StatusSection({ workspaceId }: ScreenProps) {
  return (
    <>
      <Usage workspaceId={workspaceId} />
      <ServerStatus />
    </>
  );
}

function Usage({ workspaceId }: ScreenProps) {
  const found = useQuery({
    queryKey: [workspaceId, "usage"],
    queryFn: () =>
      unwrap(api.GET("/api/v1/workspaces/{workspace_id}/usage", { params: { path: { workspace_id: workspaceId } } })),
    staleTime: 60_000,
  });
  if (found.isPending) return <Skeleton what="usage" />;
  if (found.error) return <ErrorNote error={found.error} />;
  const { usage, limits } = found.data;
  return (
    <Card title="Storage">
      <Facts>
        <Fact name="Files">{count(usage.files)}</Fact>
        <Fact name="Deleted files">{count(usage.deleted_files)}</Fact>
        <Fact name="Versions">{count(usage.versions)}</Fact>
        <Fact name="History on disk">
          {bytes(usage.stored_bytes)} <span className="text-muted">for {bytes(usage.content_bytes)} of content</span>
        </Fact>
        <Fact name="Trash">
          {bytes(usage.trash_bytes)} <span className="text-muted">of {bytes(limits.trash_max_bytes)}</span>
          <Meter part={usage.trash_bytes} whole={limits.trash_max_bytes} label="Trash" />
        </Fact>
        <Fact name="Sessions">{count(usage.sessions)}</Fact>
        <Fact name="Calls">{count(usage.calls)}</Fact>
        <Fact name="Not yet on disk">{count(usage.pending)}</Fact>
      </Facts>
      <h3 className="mt-6 mb-2 font-semibold">Server limits</h3>
      <Facts>
        <Fact name="Max file size">{bytes(limits.max_file_bytes)}</Fact>
        <Fact name="Max request size">{bytes(limits.max_request_bytes)}</Fact>
        <Fact name="Trash retention">{days(limits.trash_retention_days)}</Fact>
        <Fact name="Version retention">
          {limits.version_retention_days === null ? "forever" : days(limits.version_retention_days)}
        </Fact>
        <Fact name="Approval timeout">{days(limits.approval_timeout_seconds / 86_400)}</Fact>
      </Facts>
    </Card>
  );
}

function ServerStatus() {
  const status = useQuery({ queryKey: ["status"], queryFn: () => unwrap(api.GET("/api/v1/status")) });
  if (status.isPending) return <Skeleton what="status" />;
  if (status.error) return <ErrorNote error={status.error} />;
  const { isolation, node, version } = status.data;
  return (
    <Card title="Server" aside={<Badge tone="good">online</Badge>}>
      <Facts>
        <Fact name="Node">{node}</Fact>
        <Fact name="Version">{version}</Fact>
        <Fact name="Command isolation">
          <Badge tone={toneOf(isolation)}>{isolation.offered ? isolation.level : "commands disabled"}</Badge>
        </Fact>
        <Fact name="Command file system">{isolation.overlay ? "copy-on-write" : "copy of the tree"}</Fact>
      </Facts>
      <Gaps gaps={isolation.gaps} />
      <details className="mt-4">
        <summary className="text-muted">{isolation.held.length} escape attempts blocked at startup</summary>
        <ul className="mt-2 list-disc space-y-0.5 pl-6 text-xs">
          {isolation.held.map((one) => (
            <li key={one}>{one}</li>
          ))}
        </ul>
      </details>
    </Card>
  );
}

function toneOf(isolation: Schema["IsolationOut"]): Tone {
  if (!isolation.offered) return "bad";
  return isolation.level === "namespaces" ? "good" : "warn";
}

function Gaps({ gaps }: { gaps: Schema["IsolationGapOut"][] }) {
  if (gaps.length === 0) return null;
  return (
    <>
      <h3 className="mt-6 mb-2 font-semibold">Degraded isolation</h3>
      <ul className="space-y-2">
        {gaps.map((gap) => (
          <li key={gap.name} className="rounded-md border border-line p-3">
            <div className="flex flex-wrap items-center gap-2">
              <span className="font-medium">{gap.name}</span>
              {gap.open ? <Badge tone="bad">open</Badge> : <Badge>mitigated</Badge>}
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
