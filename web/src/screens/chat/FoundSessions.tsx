/** What a search over conversations found: each session once, with the text around the first match. */
import { SearchX } from "lucide-react";
import { Link } from "wouter";
import { Empty } from "../../components/Empty";
import { ErrorNote } from "../../components/ErrorNote";
import { Loading } from "../../components/Loading";
import { RelativeTime } from "../../components/RelativeTime";
import { escapedLine } from "../../components/shownText";
import { type FoundSession, useFoundSessions } from "./sessions";

interface Props {
  workspaceId: string;
  query: string;
  current: string | undefined;
}

export function FoundSessions({ workspaceId, query, current }: Props) {
  const found = useFoundSessions(workspaceId, query);
  if (found.error) return <ErrorNote error={found.error} />;
  if (found.isPending) return <Loading what="results" />;
  if (found.data.items.length === 0)
    return (
      <div className="pt-6">
        <SearchX aria-hidden className="mx-auto size-8 text-muted" strokeWidth={1.2} />
        <Empty title="Nothing found">Titles and messages are searched by the beginnings of words.</Empty>
      </div>
    );
  return (
    <ul aria-label="Search results" className="p-2">
      {found.data.items.map((one) => (
        <li key={one.session_id}>
          <Link
            href={`/w/${workspaceId}/chat/${one.session_id}`}
            aria-current={one.session_id === current ? "true" : undefined}
            className="block rounded-md px-2 py-2 -outline-offset-2 hover:bg-accent-soft aria-[current]:bg-accent-soft"
          >
            <span className="flex items-baseline gap-2">
              <span className="min-w-0 grow truncate font-medium">
                <Marked text={escapedLine(one.title ?? "Untitled session")} query={query} />
              </span>
              <span className="shrink-0 text-xs text-muted">
                <RelativeTime time={one.found_at} />
              </span>
            </span>
            {one.message_id && <Excerpt found={one} query={query} />}
          </Link>
        </li>
      ))}
    </ul>
  );
}

function Excerpt({ found, query }: { found: FoundSession; query: string }) {
  return (
    <span className="line-clamp-2 text-xs text-muted">
      {found.role === "assistant" && "Agent: "}
      <Marked text={escapedLine(found.excerpt ?? "")} query={query} />
    </span>
  );
}

/** Marks the beginnings of words that were searched for. */
function Marked({ text, query }: { text: string; query: string }) {
  const words = query.split(/[\s\p{P}]+/u).filter((word) => word !== "");
  if (words.length === 0) return text;
  const pattern = words.map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join("|");
  return text.split(new RegExp(`(?<![\\p{L}\\p{N}])(${pattern})`, "iu")).map((part, number) =>
    number % 2 === 1 ? (
      // biome-ignore lint/suspicious/noArrayIndexKey: the parts of a text have no other name
      <mark key={number} className="rounded-sm bg-warn-soft text-ink">
        {part}
      </mark>
    ) : (
      part
    ),
  );
}
