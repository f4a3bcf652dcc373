/** A person's edits of a proposed change set. The server shows what would be committed, with the hash to approve it. */
import { useMemo, useState } from "react";
import { api, unwrap } from "../../api/client";
import type { EditedCall } from "../../approvals/pausedCalls";
import type { Change } from "../../events/messages";
import { inOrder } from "./fileTree";
import { fileOfApproval, type ReviewFile } from "./reviewFiles";

interface State {
  contents: ReadonlyMap<string, string>;
  changes: Change[] | null;
  sha256: string | null;
}

const NONE: State = { contents: new Map(), changes: null, sha256: null };

export interface ProposalEdits {
  has: (path: string) => boolean;
  /** The files with the edits; null without any. */
  files: ReviewFile[] | null;
  /** What a decision carries; null without any. */
  decision: EditedCall | null;
  load: (path: string) => Promise<string>;
  save: (path: string, content: string) => Promise<void>;
  discard: (path: string) => void;
}

export function useProposalEdits(workspaceId: string, pauseId: string): ProposalEdits {
  const [{ contents, changes, sha256 }, setState] = useState<State>(NONE);
  const path = { workspace_id: workspaceId, pause_id: pauseId };
  const files = useMemo(() => changes && inOrder(changes.map(fileOfApproval)), [changes]);

  async function preview(edited: ReadonlyMap<string, string>): Promise<void> {
    if (edited.size === 0) return setState(NONE);
    const found = await unwrap(
      api.POST("/api/v1/workspaces/{workspace_id}/paused-calls/{pause_id}/edit-preview", {
        params: { path },
        body: { edits: listed(edited) },
      }),
    );
    setState({ contents: edited, changes: found.changes as unknown as Change[], sha256: found.change_set_sha256 });
  }

  async function load(file: string): Promise<string> {
    const edited = contents.get(file);
    if (edited !== undefined) return edited;
    const found = await unwrap(
      api.GET("/api/v1/workspaces/{workspace_id}/paused-calls/{pause_id}/file", {
        params: { path, query: { path: file } },
      }),
    );
    return found.content;
  }

  return {
    has: (file) => contents.has(file),
    files,
    decision: sha256 === null ? null : { edits: listed(contents), sha256 },
    load,
    save: (file, content) => preview(new Map([...contents, [file, content]])),
    discard: (file) => void preview(new Map([...contents].filter(([one]) => one !== file))),
  };
}

function listed(contents: ReadonlyMap<string, string>): EditedCall["edits"] {
  return [...contents].map(([path, content]) => ({ path, content }));
}
