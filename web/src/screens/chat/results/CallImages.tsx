/** The images that a call returned. */
import { escapedLine } from "../../../components/shownText";
import { dataUrl, isImage } from "../files";
import { storedFiles, useStoredCall } from "./storedCall";

interface Props {
  workspaceId: string;
  callId: string;
  name: string;
}

export function CallImages({ workspaceId, callId, name }: Props) {
  const call = useStoredCall(workspaceId, callId);
  if (call.isPending) return <div className="h-40 animate-pulse rounded-md bg-sunken" />;
  const images = storedFiles(call.data?.result, name).filter(({ type }) => isImage(type));
  if (images.length === 0) return <p className="text-xs text-muted">The image is no longer stored.</p>;
  return (
    <ul aria-label="Images" className="flex flex-wrap gap-2">
      {images.map(({ type, data }, number) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: the images of a call have no other name
        <li key={number}>
          <img
            src={dataUrl(type, data)}
            alt={escapedLine(name)}
            className="max-h-80 max-w-full rounded-md border border-line bg-sunken object-contain"
          />
        </li>
      ))}
    </ul>
  );
}
