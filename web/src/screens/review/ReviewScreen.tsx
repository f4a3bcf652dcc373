/** Reviews: `/review/session/…`, `/review/run/…` and `/review/approval/…`. */
import { useRoute } from "wouter";
import type { ScreenProps } from "../../app/screenProps";
import { Empty } from "../../components/Empty";
import { ApprovalReview } from "./ApprovalReview";
import { RunReview } from "./RunReview";
import { SessionReview } from "./SessionReview";

export default function ReviewScreen({ workspaceId }: ScreenProps) {
  const [, at] = useRoute("/w/:workspaceId/review/:kind/:id");
  switch (at?.kind) {
    case "session":
      return <SessionReview key={at.id} workspaceId={workspaceId} sessionId={at.id} />;
    case "run":
      return <RunReview key={at.id} workspaceId={workspaceId} runId={at.id} />;
    case "approval":
      return <ApprovalReview key={at.id} workspaceId={workspaceId} pauseId={at.id} />;
    default:
      return <Empty title="Nothing to review here">Open a review from a session or an approval.</Empty>;
  }
}
