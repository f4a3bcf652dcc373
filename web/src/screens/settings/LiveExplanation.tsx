/** What the settings of an agent mean while they are chosen: which calls run, which ask, and which are denied. */
import { keepPreviousData, useQueries } from "@tanstack/react-query";
import { CircleCheck, CircleX, Hand, type LucideIcon } from "lucide-react";
import { useMemo } from "react";
import { api, type Schema, unwrap } from "../../api/client";
import { errorText } from "../../components/errorText";
import { SkeletonLines } from "../../components/Skeleton";
import { useSettled } from "../../components/useSettled";
import type { AgentFields } from "./agentDefinition";
import { type SampleCall, sampleCalls } from "./sampleCalls";

/** Typing is over by then. */
const PAUSE = 400;

type Action = Schema["ExplanationOut"]["action"];

const GROUPS: Record<Action, { title: string; icon: LucideIcon; colour: string }> = {
  allow: { title: "Runs without asking", icon: CircleCheck, colour: "text-good" },
  ask: { title: "Asks a person", icon: Hand, colour: "text-warn" },
  deny: { title: "Is denied", icon: CircleX, colour: "text-bad" },
};

interface Props {
  workspaceId: string;
  /** The agent that is edited, whose saved approvals count. */
  agentId: string | undefined;
  definition: string;
  fields: AgentFields;
}

export function LiveExplanation({ workspaceId, agentId, definition, fields }: Props) {
  const settled = useSettled(definition, PAUSE);
  // Of the settled definition: while a path is typed, its examples stay.
  // biome-ignore lint/correctness/useExhaustiveDependencies: see above
  const samples = useMemo(() => sampleCalls(fields), [settled]);
  const found = useQueries({
    queries: samples.map((sample) => ({
      queryKey: [workspaceId, "explain", agentId, settled, sample.tool, sample.label],
      queryFn: () => explain(workspaceId, agentId, settled, sample),
      staleTime: 60_000,
      placeholderData: keepPreviousData,
    })),
  });
  const error = found.find((one) => one.error)?.error;
  const answers = samples.flatMap((sample, at) => {
    const answer = found[at]?.data;
    return answer ? [{ sample, answer }] : [];
  });
  return (
    <section
      aria-label="What these settings mean"
      aria-busy={settled !== definition || found.some(({ isFetching }) => isFetching)}
      className="space-y-3 rounded-lg border border-line bg-sunken p-4"
    >
      <h3 className="text-sm font-medium">What these settings mean</h3>
      {error && <p className="text-sm text-bad">{errorText(error)}</p>}
      {!error && answers.length === 0 && <SkeletonLines what="explanation" rows={4} />}
      {!error && answers.length > 0 && (
        <div className="grid gap-4 md:grid-cols-3">
          {(Object.keys(GROUPS) as Action[]).map((action) => (
            <Group key={action} action={action} answers={answers.filter(({ answer }) => answer.action === action)} />
          ))}
        </div>
      )}
      <p className="text-xs text-muted">
        Examples, decided by the rules that decide real calls. Point at one for its reason.
      </p>
    </section>
  );
}

interface GroupProps {
  action: Action;
  answers: { sample: SampleCall; answer: Schema["ExplanationOut"] }[];
}

function Group({ action, answers }: GroupProps) {
  const { title, icon: Icon, colour } = GROUPS[action];
  return (
    <div>
      <h4 className={`mb-1 flex items-center gap-1 text-xs font-medium ${colour}`}>
        <Icon aria-hidden className="size-4" />
        {title}
      </h4>
      <ul aria-label={title} className="space-y-1 text-xs">
        {answers.map(({ sample, answer }) => (
          <li key={sample.label} title={`${answer.reason} (${answer.rule})`} className="wrap-anywhere">
            {sample.label}
            {answer.asks_about === "effect" && <span className="text-muted"> (about what it changed)</span>}
          </li>
        ))}
        {answers.length === 0 && <li className="text-muted">None of the examples</li>}
      </ul>
    </div>
  );
}

function explain(workspaceId: string, agentId: string | undefined, definition: string, { tool, args }: SampleCall) {
  return unwrap(
    api.POST("/api/v1/workspaces/{workspace_id}/explain", {
      params: { path: { workspace_id: workspaceId } },
      body: { tool, args, definition, agent_id: agentId ?? null },
    }),
  );
}
