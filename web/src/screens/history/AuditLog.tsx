/** The audit log: every call, also denied ones, with filters and verification. For owners. */
import { useState } from "react";
import { ApiError } from "../../api/client";
import { type Names, nameOfActor, useNames } from "../../api/names";
import { Badge, type Tone } from "../../components/Badge";
import { Button } from "../../components/Button";
import { Code } from "../../components/Code";
import { Dialog } from "../../components/Dialog";
import { Empty } from "../../components/Empty";
import { ErrorNote } from "../../components/ErrorNote";
import { Field } from "../../components/Field";
import { Select } from "../../components/Select";
import { Skeleton } from "../../components/Skeleton";
import { type Column, Table } from "../../components/Table";
import { AuditVerification } from "./AuditVerification";
import { type AuditRecord, type Filters, useAuditLog } from "./history";
import { summaryOf } from "./timeline";

const ALL: Filters = { who: "", tool: "", outcome: "", since: "", until: "" };
const OUTCOMES: Record<Filters["outcome"], string> = {
  "": "Any outcome",
  done: "Done",
  failed: "Failed",
  denied: "Denied",
  changed: "Changed files",
  ended: "Ended",
};
const TONES: Record<AuditRecord["outcome"], Tone> = {
  done: "good",
  failed: "warn",
  denied: "bad",
  changed: "good",
  ended: "good",
};

export function AuditLog({ workspaceId }: { workspaceId: string }) {
  const [filters, setFilters] = useState(ALL);
  const [shown, setShown] = useState<AuditRecord | null>(null);
  const names = useNames(workspaceId);
  const log = useAuditLog(workspaceId, filters);
  if (log.error instanceof ApiError && log.error.status === 403)
    return <Empty title="Only owners can read the audit log">{log.error.message}</Empty>;
  const records = log.data?.pages.flatMap((page) => page.items) ?? [];
  return (
    <div className="space-y-4">
      <AuditVerification workspaceId={workspaceId} />
      <FilterForm filters={filters} names={names} onChange={setFilters} />
      <ErrorNote error={log.error} />
      {log.isPending && <Skeleton what="audit log" rows={8} />}
      {log.data && records.length === 0 && !log.hasNextPage && <Empty title="No matching records" />}
      {records.length > 0 && (
        <Table label="Records" columns={columnsOf(names, setShown)} rows={records} keyOf={(record) => record.id} />
      )}
      {log.hasNextPage && (
        <Button wide busy={log.isFetchingNextPage} onClick={() => void log.fetchNextPage()}>
          Show older
        </Button>
      )}
      <Dialog title={`Record ${shown?.position ?? ""}`} isOpen={shown !== null} onClose={() => setShown(null)} wide>
        {shown && <Code text={JSON.stringify(shown, null, 2)} label="Full record" isTall />}
      </Dialog>
    </div>
  );
}

interface FilterProps {
  filters: Filters;
  names: Names;
  onChange: (filters: Filters) => void;
}

function FilterForm({ filters, names, onChange }: FilterProps) {
  const who = {
    "": "Anyone",
    ...Object.fromEntries([...names.people].map(([id, name]) => [`user:${id}`, name])),
    ...Object.fromEntries([...names.agents].map(([id, name]) => [`agent:${id}`, `${name} (agent)`])),
  };
  const set = (change: Partial<Filters>) => onChange({ ...filters, ...change });
  return (
    <form
      aria-label="Filters"
      onSubmit={(event) => event.preventDefault()}
      className="grid grid-cols-2 items-start gap-2 md:grid-cols-5"
    >
      <Select label="Who" value={filters.who} onChange={(value) => set({ who: value })} options={who} />
      <Field label="Tool" value={filters.tool} onChange={(tool) => set({ tool })} placeholder="write" />
      <Select
        label="Outcome"
        value={filters.outcome}
        onChange={(outcome) => set({ outcome: outcome as Filters["outcome"] })}
        options={OUTCOMES}
      />
      <Field label="From" type="datetime-local" value={filters.since} onChange={(since) => set({ since })} />
      <Field label="Until" type="datetime-local" value={filters.until} onChange={(until) => set({ until })} />
    </form>
  );
}

function columnsOf(names: Names, show: (record: AuditRecord) => void): Column<AuditRecord>[] {
  return [
    { title: "When", cell: (record) => <When time={record.created_at} /> },
    { title: "Who", cell: (record) => nameOfActor(names, record.user_id, record.agent_id) },
    {
      title: "Tool",
      cell: (record) => (
        <span className="block min-w-36">
          <span className="font-mono font-medium whitespace-nowrap">{record.tool}</span>{" "}
          <span className="font-mono text-xs text-muted wrap-anywhere">
            {summaryOf({ tool: record.tool, arguments: record.arguments }).slice(0, 120)}
          </span>
        </span>
      ),
    },
    {
      title: "Decision",
      cell: (record) => (
        <span className="block min-w-36">
          {record.decision !== "none" && `${record.decision} by `}
          <span className="text-xs text-muted wrap-anywhere">{record.rule}</span>
        </span>
      ),
    },
    {
      title: "Outcome",
      cell: (record) => <Badge tone={TONES[record.outcome]}>{record.error_code ?? OUTCOMES[record.outcome]}</Badge>,
    },
    {
      title: "Record",
      isRight: true,
      cell: (record) => (
        <Button small variant="quiet" aria-label={`Show record ${record.position}`} onClick={() => show(record)}>
          Show
        </Button>
      ),
    },
  ];
}

function When({ time }: { time: string }) {
  return (
    <time dateTime={time} className="whitespace-nowrap">
      {new Date(time).toLocaleString(undefined, { dateStyle: "short", timeStyle: "medium" })}
    </time>
  );
}
