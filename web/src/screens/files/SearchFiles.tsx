/** Search by content or by name. */

import { type FormEvent, useState } from "react";
import { Button } from "../../components/Button";
import { Empty } from "../../components/Empty";
import { ErrorNote } from "../../components/ErrorNote";
import { Field } from "../../components/Field";
import { Loading } from "../../components/Loading";
import { Select } from "../../components/Select";
import { escapedLine } from "../../components/shownText";
import { type Hit, type SearchQuery, useSearch } from "./files";

interface Props {
  workspaceId: string;
  onShow: (path: string, line?: number) => void;
}

const NOTHING: SearchQuery = { text: "", where: "contents", isCaseSensitive: false };

export function SearchFiles({ workspaceId, onShow }: Props) {
  const [typed, setTyped] = useState<SearchQuery>(NOTHING);
  const [query, setQuery] = useState<SearchQuery>(NOTHING);
  const found = useSearch(workspaceId, query);

  function submit(event: FormEvent) {
    event.preventDefault();
    setQuery(typed);
  }

  return (
    <div>
      <form onSubmit={submit} role="search" className="space-y-2 border-b border-line p-3">
        <Field
          label="Search"
          type="search"
          value={typed.text}
          onChange={(text) => setTyped({ ...typed, text })}
          hint={
            typed.where === "contents"
              ? "Regular expression, matched line by line."
              : "Part of a name, or a pattern such as *.md."
          }
        />
        <div className="flex items-end gap-2">
          <div className="grow">
            <Select
              label="Search in"
              value={typed.where}
              onChange={(where) => setTyped({ ...typed, where: where as SearchQuery["where"] })}
              options={{ contents: "File contents", names: "File names" }}
            />
          </div>
          <Button variant="primary" type="submit">
            Search
          </Button>
        </div>
        {typed.where === "contents" && (
          <label className="flex items-center gap-2">
            <input
              type="checkbox"
              checked={typed.isCaseSensitive}
              onChange={(event) => setTyped({ ...typed, isCaseSensitive: event.target.checked })}
            />
            Match case
          </label>
        )}
      </form>
      {found.isLoading && <Loading what="results" />}
      <div className="p-2">
        <ErrorNote error={found.error} />
        {found.data?.hint && <p className="px-1 pb-2 text-xs text-warn">{found.data.hint}</p>}
        {found.data?.hits.length === 0 && <Empty title="No results" />}
        {found.data && found.data.hits.length > 0 && <Hits hits={found.data.hits} onShow={onShow} />}
      </div>
    </div>
  );
}

function Hits({ hits, onShow }: { hits: readonly Hit[]; onShow: Props["onShow"] }) {
  return (
    <ul aria-label="Search results" className="space-y-2">
      {grouped(hits).map(([path, found]) => (
        <li key={path}>
          <button
            type="button"
            onClick={() => onShow(path, found[0]?.line)}
            className="block w-full truncate rounded-sm px-1 text-left font-medium hover:bg-accent-soft"
          >
            {escapedLine(path)}
          </button>
          {found.map(
            (hit) =>
              hit.line !== undefined && (
                <button
                  key={hit.line}
                  type="button"
                  onClick={() => onShow(path, hit.line)}
                  className="flex w-full gap-2 rounded-sm px-1 text-left font-mono text-xs leading-5 hover:bg-accent-soft"
                >
                  <span className="w-8 shrink-0 text-right text-muted">{hit.line}</span>
                  <span className="min-w-0 truncate">{hit.text?.trim()}</span>
                </button>
              ),
          )}
        </li>
      ))}
    </ul>
  );
}

function grouped(hits: readonly Hit[]): [string, Hit[]][] {
  const groups = new Map<string, Hit[]>();
  for (const hit of hits) groups.set(hit.path, [...(groups.get(hit.path) ?? []), hit]);
  return [...groups];
}
