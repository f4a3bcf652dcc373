/** Schedules over HTTP. */
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { api, type Schema, unwrap } from "../../api/client";

export type Schedule = Schema["ScheduleOut"];

const key = (workspaceId: string) => [workspaceId, "schedules"] as const;

/** A firing starts a run, which is activity of the workspace. */
export function useSchedules(workspaceId: string) {
  return useQuery({
    queryKey: key(workspaceId),
    queryFn: () =>
      unwrap(
        api.GET("/api/v1/workspaces/{workspace_id}/schedules", { params: { path: { workspace_id: workspaceId } } }),
      ),
  });
}

export function useCreateSchedule(workspaceId: string) {
  const refetch = useRefetch(workspaceId);
  return useMutation({
    mutationFn: (body: Schema["ScheduleCreate"]) =>
      unwrap(
        api.POST("/api/v1/workspaces/{workspace_id}/schedules", {
          params: { path: { workspace_id: workspaceId } },
          body,
        }),
      ),
    onSuccess: refetch,
  });
}

export function useChangeSchedule(workspaceId: string, scheduleId: string) {
  const refetch = useRefetch(workspaceId);
  const path = { workspace_id: workspaceId, schedule_id: scheduleId };
  return useMutation({
    mutationFn: (body: Schema["ScheduleUpdate"]) =>
      unwrap(api.PATCH("/api/v1/workspaces/{workspace_id}/schedules/{schedule_id}", { params: { path }, body })),
    onSuccess: refetch,
  });
}

export function useRunSchedule(workspaceId: string, scheduleId: string) {
  const refetch = useRefetch(workspaceId);
  const path = { workspace_id: workspaceId, schedule_id: scheduleId };
  return useMutation({
    mutationFn: () =>
      unwrap(api.POST("/api/v1/workspaces/{workspace_id}/schedules/{schedule_id}/run", { params: { path } })),
    onSuccess: refetch,
  });
}

/** Returns a function that removes a schedule. */
export function useRemoveSchedule(workspaceId: string, scheduleId: string): () => Promise<void> {
  const refetch = useRefetch(workspaceId);
  const path = { workspace_id: workspaceId, schedule_id: scheduleId };
  return async () => {
    await unwrap(api.DELETE("/api/v1/workspaces/{workspace_id}/schedules/{schedule_id}", { params: { path } }));
    await refetch();
  };
}

function useRefetch(workspaceId: string): () => Promise<void> {
  const queries = useQueryClient();
  return () => queries.invalidateQueries({ queryKey: key(workspaceId) });
}
