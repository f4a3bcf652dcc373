/** Results of a web search, and pages that were read. Nothing of them is loaded before a person opens one. */
import { ExternalLink } from "lucide-react";
import { Code } from "../../../components/Code";
import { escapedLine } from "../../../components/shownText";
import type { WebResult } from "./callView";

export function WebResults({ results }: { results: readonly WebResult[] }) {
  return (
    <ul aria-label="Web results" className="grid gap-2 sm:grid-cols-2">
      {results.map(({ title, url, snippet }) => (
        <li key={url}>
          <Outside url={url} title={title} />
          {snippet && <p className="mt-1 line-clamp-3 text-xs text-muted">{escapedLine(snippet)}</p>}
        </li>
      ))}
    </ul>
  );
}

export function PageCard({ url, title, text }: { url: string; title: string; text: string }) {
  return (
    <div className="space-y-2">
      <Outside url={url} title={title} />
      <Code text={text} label="Result" />
    </div>
  );
}

/** A link that shows where it leads. */
function Outside({ url, title }: { url: string; title: string }) {
  const address = hostOf(url);
  if (address === null) return <p className="text-sm wrap-anywhere">{escapedLine(url)}</p>;
  return (
    <a
      href={url}
      target="_blank"
      rel="noreferrer noopener"
      className="block rounded-md border border-line bg-sunken px-3 py-2 hover:border-accent"
    >
      <span className="flex items-center gap-1 text-xs text-muted">
        <span className="min-w-0 truncate">{address}</span>
        <ExternalLink aria-hidden className="size-3 shrink-0" />
      </span>
      <span className="block truncate text-sm font-medium text-accent">{escapedLine(title)}</span>
    </a>
  );
}

function hostOf(url: string): string | null {
  try {
    const { protocol, host, pathname } = new URL(url);
    return /^https?:$/.test(protocol) ? `${host}${pathname === "/" ? "" : pathname}` : null;
  } catch {
    return null;
  }
}
