/** Answers questions over HTTP. */
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { api, unwrap } from "../api/client";

export type Answers = Record<string, unknown>;

export function useAnswer(workspaceId: string, questionId: string) {
  const queries = useQueryClient();
  return useMutation({
    mutationFn: ({ answers, byButton }: { answers: Answers; byButton: string[] }) =>
      unwrap(
        api.POST("/api/v1/workspaces/{workspace_id}/questions/{question_id}/answer", {
          params: { path: { workspace_id: workspaceId, question_id: questionId } },
          body: { answers, by_button: byButton },
        }),
      ),
    onSettled: () => queries.invalidateQueries({ queryKey: [workspaceId, "pending"] }),
  });
}
