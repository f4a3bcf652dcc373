/** What a call did, as people read it. */
import { lazy, Suspense } from "react";
import { Link } from "wouter";
import { ArgumentList, Code } from "../../../components/Code";
import { escapedLine } from "../../../components/shownText";
import type { Call } from "../../../events/conversation";
import { CallChanges } from "./CallChanges";
import { CallImages } from "./CallImages";
import type { CallView } from "./callView";
import { DataTable } from "./DataTable";
import { fileAddress, MatchList, PathList } from "./FileLists";
import { Terminal } from "./Terminal";
import { PageCard, WebResults } from "./WebCards";

const CsvTable = lazy(() => import("./CsvTable"));

interface Props {
  workspaceId: string;
  call: Call;
  view: CallView;
}

export function CallResult({ workspaceId, call, view }: Props) {
  switch (view.kind) {
    case "terminal":
      return (
        <Terminal
          command={view.command}
          output={view.output}
          exitCode={view.exitCode}
          isRunning={call.status === "running"}
        />
      );
    case "matches":
      return <WithHint hint={view.hint} body={<MatchList workspaceId={workspaceId} files={view.files} />} />;
    case "paths":
      return <WithHint hint={view.hint} body={<PathList workspaceId={workspaceId} paths={view.paths} />} />;
    case "table":
      return <DataTable columns={view.columns} rows={view.rows} total={view.total} />;
    case "csv":
      return (
        <FromFile
          workspaceId={workspaceId}
          path={view.path}
          body={
            <Suspense fallback={<Code text={view.text} label="Result" />}>
              <CsvTable text={view.text} />
            </Suspense>
          }
        />
      );
    case "file":
      return (
        <FromFile
          workspaceId={workspaceId}
          path={view.path}
          body={<Code text={view.text} label="Result" firstLine={view.firstLine} />}
        />
      );
    case "web-results":
      return <WebResults results={view.results} />;
    case "page":
      return <PageCard url={view.url} title={view.title} text={view.text} />;
    case "images":
      return <CallImages workspaceId={workspaceId} callId={call.id} name={view.name} />;
    case "changes":
      return <CallChanges workspaceId={workspaceId} callId={call.id} />;
    case "fields":
      return <ArgumentList given={view.value} label="Result" />;
    case "text":
      return <Code text={view.text} label={call.result === null ? "Output so far" : "Result"} />;
    case "error":
      return (
        <div className="rounded-md border-l-2 border-bad">
          <Code text={view.text} label="Result" />
        </div>
      );
  }
}

function WithHint({ hint, body }: { hint: string | null; body: React.ReactNode }) {
  return (
    <>
      {body}
      {hint && <p className="text-xs text-muted">{escapedLine(hint)}</p>}
    </>
  );
}

function FromFile({ workspaceId, path, body }: { workspaceId: string; path: string; body: React.ReactNode }) {
  return (
    <>
      <Link href={fileAddress(workspaceId, path)} className="block truncate text-xs text-accent hover:underline">
        Open {escapedLine(path)}
      </Link>
      {body}
    </>
  );
}
