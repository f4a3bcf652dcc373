/** A changed image as it was and as it is. */
import { isBinary } from "../../api/content";
import { ErrorNote } from "../../components/ErrorNote";
import { Loading } from "../../components/Loading";
import { escapedLine } from "../../components/shownText";
import { dataUrl } from "../chat/files";
import { useVersion } from "../files/files";
import type { ReviewFile } from "./reviewFiles";

interface Props {
  workspaceId: string;
  file: ReviewFile;
}

export default function ReviewImages({ workspaceId, file }: Props) {
  return (
    <ul aria-label={`Images of ${escapedLine(file.path)}`} className="flex flex-wrap justify-center gap-4 p-3">
      {file.images.map(({ title, versionId }) => (
        <li key={versionId} className="min-w-0 space-y-1 text-center text-xs text-muted">
          <p>{file.images.length > 1 ? title : file.change === "deleted" ? "Before" : title}</p>
          <VersionImage workspaceId={workspaceId} versionId={versionId} name={`${title}: ${escapedLine(file.path)}`} />
        </li>
      ))}
    </ul>
  );
}

function VersionImage({ workspaceId, versionId, name }: { workspaceId: string; versionId: string; name: string }) {
  const version = useVersion(workspaceId, versionId);
  if (version.error) return <ErrorNote error={version.error} />;
  if (version.isPending) return <Loading what="image" />;
  const { content } = version.data;
  if (!isBinary(content)) return <p>The content is not kept.</p>;
  return (
    <img
      src={dataUrl(typeOf(name), content.data)}
      alt={name}
      // A pattern shows what is transparent.
      className="max-h-80 max-w-full rounded-md border border-line bg-[repeating-conic-gradient(var(--line)_0_25%,transparent_0_50%)] bg-size-[16px_16px] object-contain"
    />
  );
}

function typeOf(name: string): string {
  const ending = name.slice(name.lastIndexOf(".") + 1).toLowerCase();
  return `image/${ending === "jpg" ? "jpeg" : ending}`;
}
