/** The first steps in a workspace: a model key, an agent, and a first message. */
import { Check } from "lucide-react";
import { type ReactNode, useState } from "react";
import { Link } from "wouter";
import type { ScreenProps } from "../../app/screenProps";
import { useMayWrite, useWorkspace } from "../../app/workspaces";
import { Empty } from "../../components/Empty";
import { ErrorNote } from "../../components/ErrorNote";
import { Select } from "../../components/Select";
import { Skeleton } from "../../components/Skeleton";
import { KeyForm } from "../settings/KeyForm";
import { AgentStep } from "./AgentStep";
import { MessageStep } from "./MessageStep";
import { useOwnProviders, useProviders, useReadyAgents } from "./start";

export default function StartScreen({ workspaceId }: ScreenProps) {
  const workspace = useWorkspace(workspaceId);
  const mayWrite = useMayWrite(workspaceId);
  const own = useOwnProviders();
  const agents = useReadyAgents(workspaceId);
  const isOwner = workspace.data?.role === "owner";
  const hasKey = (own.data?.length ?? 0) > 0;
  const hasAgent = agents.ready.length > 0;
  const step = hasAgent ? 3 : hasKey ? 2 : 1;
  return (
    <div tabIndex={0} role="region" aria-label="First steps" className="h-full overflow-y-auto">
      <div className="mx-auto max-w-2xl space-y-6 p-4 pb-16 md:pt-8">
        <header className="space-y-1">
          <h1 className="text-2xl font-semibold tracking-tight">Put an agent to work</h1>
          <p className="text-muted">
            An agent works on the files of this workspace with tools that you allow. Every change is a version that you
            can review and undo.
          </p>
        </header>
        <ErrorNote error={own.error ?? agents.error} />
        {own.isPending || agents.isPending || workspace.isPending ? (
          <Skeleton what="the first steps" />
        ) : !mayWrite ? (
          <Empty title="You can read this workspace">
            A viewer sees its sessions, files and history. An owner can make you a member, so that you can work here.{" "}
            <Link href={`/w/${workspaceId}/chat`} className="text-accent underline">
              See the sessions
            </Link>
          </Empty>
        ) : !isOwner && !hasAgent ? (
          <Empty title="No agent yet">An owner of this workspace can add one. Then you can give it a task here.</Empty>
        ) : (
          <ol className="space-y-3">
            {isOwner && (
              <>
                <Step number={1} current={step} title="Connect a model" done={own.data?.join(", ")}>
                  <ModelStep />
                </Step>
                <Step
                  number={2}
                  current={step}
                  title="Create an agent"
                  done={agents.ready.map(({ name }) => name).join(", ")}
                >
                  <AgentStep workspaceId={workspaceId} providers={own.data ?? []} />
                </Step>
              </>
            )}
            <Step number={3} current={step} title="Give it a first task">
              <MessageStep workspaceId={workspaceId} agents={agents.ready} />
            </Step>
          </ol>
        )}
      </div>
    </div>
  );
}

interface StepProps {
  number: number;
  current: number;
  title: string;
  /** What was chosen in it. */
  done?: string | undefined;
  children: ReactNode;
}

function Step({ number, current, title, done, children }: StepProps) {
  const isDone = number < current;
  const isCurrent = number === current;
  return (
    <li
      aria-current={isCurrent ? "step" : undefined}
      className={`rounded-xl border p-4 ${isCurrent ? "border-accent/50 bg-surface shadow-card" : "border-line"}`}
    >
      <h2 className={`flex items-center gap-3 font-semibold ${isCurrent || isDone ? "" : "text-muted"}`}>
        <span
          aria-hidden
          className={`inline-flex size-6 shrink-0 items-center justify-center rounded-full text-xs ${isDone ? "bg-good-soft text-good" : isCurrent ? "bg-accent text-on-accent" : "bg-sunken text-muted"}`}
        >
          {isDone ? <Check className="size-3.5" strokeWidth={3} /> : number}
        </span>
        {title}
        {isDone && <span className="min-w-0 truncate text-sm font-normal text-muted">{done}</span>}
      </h2>
      {isCurrent && <div className="mt-4 md:pl-9">{children}</div>}
    </li>
  );
}

function ModelStep() {
  const providers = useProviders();
  const [chosen, setChosen] = useState<string | null>(null);
  if (providers.isPending) return <Skeleton what="providers" rows={1} />;
  if (providers.error) return <ErrorNote error={providers.error} />;
  const names = providers.data.items;
  const provider = chosen ?? names[0] ?? "";
  return (
    <div className="space-y-4">
      <Select
        label="Provider"
        value={provider}
        onChange={setChosen}
        options={Object.fromEntries(names.map((name) => [name, name]))}
      />
      <KeyForm key={provider} provider={provider} isStored={false} />
      <p className="text-sm text-muted">
        The key is checked, stored encrypted, and never shown again. Your agents use it in all your workspaces.
      </p>
    </div>
  );
}
