/** The schedules of a workspace: messages that are sent to agents by the clock. */
import { Plus } from "lucide-react";
import { type ReactNode, useState } from "react";
import { Link } from "wouter";
import { nameOfActor, useNames } from "../../api/names";
import { useMe } from "../../app/me";
import type { ScreenProps } from "../../app/screenProps";
import { useWorkspace } from "../../app/workspaces";
import { Badge } from "../../components/Badge";
import { Button } from "../../components/Button";
import { Card } from "../../components/Card";
import { ConfirmButton } from "../../components/ConfirmButton";
import { Dialog } from "../../components/Dialog";
import { Empty } from "../../components/Empty";
import { ErrorNote } from "../../components/ErrorNote";
import { Page } from "../../components/Page";
import { RelativeTime } from "../../components/RelativeTime";
import { Skeleton } from "../../components/Skeleton";
import { escapedLine } from "../../components/shownText";
import { NewScheduleForm } from "./NewScheduleForm";
import { type Schedule, useChangeSchedule, useRemoveSchedule, useRunSchedule, useSchedules } from "./schedules";
import { localTime, PRESETS } from "./times";

export default function SchedulesScreen({ workspaceId }: ScreenProps) {
  const schedules = useSchedules(workspaceId);
  const role = useWorkspace(workspaceId).data?.role;
  const [isAdding, setIsAdding] = useState(false);
  return (
    <Page
      title="Schedules"
      label="Schedules"
      about="Messages to agents by the clock. Each time starts a new session, as its user."
      aside={
        role !== undefined &&
        role !== "viewer" && (
          <Button variant="primary" onClick={() => setIsAdding(true)}>
            <Plus aria-hidden className="size-4" /> New schedule
          </Button>
        )
      }
    >
      {schedules.isPending && <Skeleton what="schedules" />}
      <ErrorNote error={schedules.error} />
      {schedules.data?.items.length === 0 && (
        <Empty title="No schedules yet">A schedule sends its message every morning, every Monday, or every hour.</Empty>
      )}
      {schedules.data?.items.map((schedule) => (
        <ScheduleCard key={schedule.id} workspaceId={workspaceId} schedule={schedule} isOwner={role === "owner"} />
      ))}
      <Dialog title="New schedule" isOpen={isAdding} onClose={() => setIsAdding(false)}>
        <NewScheduleForm workspaceId={workspaceId} onAdded={() => setIsAdding(false)} />
      </Dialog>
    </Page>
  );
}

interface CardProps {
  workspaceId: string;
  schedule: Schedule;
  isOwner: boolean;
}

function ScheduleCard({ workspaceId, schedule, isOwner }: CardProps) {
  const names = useNames(workspaceId);
  const isMine = useMe().data?.id === schedule.user_id;
  const { cron, time_zone: zone, next_at: next, last_at: last, last_session_id: session } = schedule;
  return (
    <Card title={escapedLine(schedule.name)} aside={<State schedule={schedule} />}>
      <dl className="grid grid-cols-[auto_1fr] gap-x-4 gap-y-2 text-sm">
        <Fact label="When">
          {PRESETS[cron] && `${PRESETS[cron]} · `}
          <code>{cron}</code> · {zone}
        </Fact>
        <Fact label="Next">{next === null ? "paused" : localTime(next, zone)}</Fact>
        <Fact label="Last">
          {last === null ? (
            "never"
          ) : (
            <>
              <RelativeTime time={last} />
              {session && (
                <>
                  {" · "}
                  <Link href={`/w/${workspaceId}/chat/${session}`} className="text-accent underline">
                    Open session
                  </Link>
                </>
              )}
            </>
          )}
        </Fact>
        <Fact label="Agent">{nameOfActor(names, null, schedule.agent_id)}</Fact>
        {!isMine && <Fact label="User">{nameOfActor(names, schedule.user_id, null)}</Fact>}
      </dl>
      {schedule.last_error && <p className="mt-3 rounded-md bg-bad-soft px-3 py-2 text-bad">{schedule.last_error}</p>}
      <p className="mt-3 rounded-md bg-sunken px-3 py-2 whitespace-pre-wrap wrap-anywhere">{schedule.message}</p>
      {(isMine || isOwner) && <Actions workspaceId={workspaceId} schedule={schedule} isMine={isMine} />}
    </Card>
  );
}

function Fact({ label, children }: { label: string; children: ReactNode }) {
  return (
    <>
      <dt className="text-muted">{label}</dt>
      <dd className="min-w-0 wrap-anywhere">{children}</dd>
    </>
  );
}

function State({ schedule }: { schedule: Schedule }) {
  if (!schedule.enabled) return <Badge>paused</Badge>;
  return schedule.last_error ? <Badge tone="bad">failed</Badge> : <Badge tone="good">active</Badge>;
}

/** Owners can pause and remove the schedules of others; only their users can resume them and send their messages. */
function Actions({ workspaceId, schedule, isMine }: { workspaceId: string; schedule: Schedule; isMine: boolean }) {
  const change = useChangeSchedule(workspaceId, schedule.id);
  const run = useRunSchedule(workspaceId, schedule.id);
  const remove = useRemoveSchedule(workspaceId, schedule.id);
  const name = escapedLine(schedule.name);
  return (
    <div className="mt-4 space-y-2">
      <div className="flex flex-wrap gap-2">
        {schedule.enabled && (
          <Button
            small
            aria-label={`Pause ${name}`}
            busy={change.isPending}
            onClick={() => change.mutate({ enabled: false })}
          >
            Pause
          </Button>
        )}
        {!schedule.enabled && isMine && (
          <Button
            small
            aria-label={`Resume ${name}`}
            busy={change.isPending}
            onClick={() => change.mutate({ enabled: true })}
          >
            Resume
          </Button>
        )}
        {isMine && (
          <Button small aria-label={`Run now: ${name}`} busy={run.isPending} onClick={() => run.mutate()}>
            Run now
          </Button>
        )}
        <ConfirmButton
          label={`Remove ${name}`}
          consequence="It sends no more messages. Its sessions stay."
          act={remove}
        >
          Remove
        </ConfirmButton>
      </div>
      <ErrorNote error={change.error ?? run.error} />
    </div>
  );
}
