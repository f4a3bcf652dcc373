/** Decides several approvals at once. Each decision names the arguments that the person saw of that call. */
import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, unwrap } from "../api/client";
import { type PendingCall, pendingQuery } from "../approvals/pausedCalls";
import { errorText } from "../components/errorText";
import type { Approval } from "../events/conversation";
import type { Waiting } from "./inbox";
import type { Decided } from "./results";
import { summaryOf } from "./summary";

export type WaitingApproval = Waiting & { pause: Approval };

export function useDecideSeveral() {
  const queries = useQueryClient();
  const [isBusy, setIsBusy] = useState(false);
  const [decided, setDecided] = useState<readonly Decided[]>([]);

  /** The calls disappear at once. One that could not be decided comes back, with the reason. */
  async function decide(calls: readonly WaitingApproval[], approved: boolean): Promise<void> {
    setIsBusy(true);
    for (const call of calls) change(call, (pending) => pending.filter(({ pause }) => pause.id !== call.pause.id));
    const results = await Promise.all(
      calls.map(async (call): Promise<Decided> => {
        const { title, detail } = summaryOf(call.pause);
        const one = { id: call.pause.id, call: `${title} ${detail}`.trim(), workspace: call.workspace.name, approved };
        try {
          await send(call, approved);
          return { ...one, failure: null };
        } catch (error) {
          change(call, (pending) => [...pending.filter(({ pause }) => pause.id !== call.pause.id), call]);
          return { ...one, failure: errorText(error) };
        }
      }),
    );
    setDecided(results);
    setIsBusy(false);
    const workspaces = new Set(calls.map(({ workspace }) => workspace.workspace_id));
    for (const id of workspaces) void queries.invalidateQueries({ queryKey: pendingQuery(id).queryKey });
    void queries.invalidateQueries({ queryKey: ["inbox"] });
  }

  function change({ workspace }: Waiting, to: (pending: PendingCall[]) => PendingCall[]): void {
    queries.setQueryData<PendingCall[]>(pendingQuery(workspace.workspace_id).queryKey, (pending) => to(pending ?? []));
  }

  return { decide, isBusy, decided, clear: () => setDecided([]) };
}

function send({ workspace, pause }: WaitingApproval, approved: boolean) {
  return unwrap(
    api.POST("/api/v1/workspaces/{workspace_id}/paused-calls/{pause_id}/decision", {
      params: { path: { workspace_id: workspace.workspace_id, pause_id: pause.id } },
      body: { approved, scope: "once", reason: null, rule: null, arguments_sha256: pause.sha256, edits: [] },
    }),
  );
}
