/** The whole result of a call. Events carry only the beginning, without the bytes of images. */
import { useQuery } from "@tanstack/react-query";
import { api, unwrap } from "../../../api/client";

export function useStoredCall(workspaceId: string, callId: string, isWanted = true) {
  return useQuery({
    queryKey: [workspaceId, "call", callId],
    queryFn: () =>
      unwrap(
        api.GET("/api/v1/workspaces/{workspace_id}/calls/{call_id}", {
          params: { path: { workspace_id: workspaceId, call_id: callId } },
        }),
      ),
    // What has ended does not change.
    staleTime: Number.POSITIVE_INFINITY,
    retry: false,
    enabled: isWanted,
  });
}

export interface StoredFile {
  type: string;
  data: string;
}

const TYPES: Readonly<Record<string, string>> = {
  png: "image/png",
  jpg: "image/jpeg",
  jpeg: "image/jpeg",
  gif: "image/gif",
  webp: "image/webp",
};

/** Returns the files that a call has stored (`attach`), read (`read`) or received from an MCP server. */
export function storedFiles(result: unknown, name: string): StoredFile[] {
  const { media, content } = (result ?? {}) as {
    media?: { mime_type: string; data?: string }[];
    content?: { data?: string };
  };
  if (media && media.length > 0)
    return media.flatMap(({ mime_type, data }) => (data === undefined ? [] : [{ type: mime_type, data }]));
  const type = TYPES[name.split(".").pop()?.toLowerCase() ?? ""];
  return type && typeof content?.data === "string" ? [{ type, data: content.data }] : [];
}
