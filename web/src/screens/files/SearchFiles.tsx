/** Search by content or by name. */
import { type FormEvent, useState } from "react";
import { Button } from "../../parts/Button";
import { Empty } from "../../parts/Empty";
import { ErrorNote } from "../../parts/ErrorNote";
import { Field } from "../../parts/Field";
import { Loading } from "../../parts/Loading";
import { Select } from "../../parts/Select";
import { type Asked, type Hit, useSearch } from "./files";

interface Props {
  workspaceId: string;
  onShow: (path: string, line?: number) => void;
}

const NOTHING: Asked = { text: "", where: "contents", isCaseSensitive: false };

export function SearchFiles({ workspaceId, onShow }: Props) {
  const [typed, setTyped] = useState<Asked>(NOTHING);
  const [asked, setAsked] = useState<Asked>(NOTHING);
  const found = useSearch(workspaceId, asked);

  function submit(event: FormEvent) {
    event.preventDefault();
    setAsked(typed);
  }

  return (
    <div>
      <form onSubmit={submit} role="search" className="space-y-2 border-b border-line p-3">
        <Field
          label="Search for"
          type="search"
          value={typed.text}
          onChange={(text) => setTyped({ ...typed, text })}
          hint={typed.where === "contents" ? "A regular expression, matched line by line." : "Part of a name, or *.md."}
        />
        <div className="flex items-end gap-2">
          <div className="grow">
            <Select
              label="Where"
              value={typed.where}
              onChange={(where) => setTyped({ ...typed, where: where as Asked["where"] })}
              options={{ contents: "In contents", names: "In names" }}
            />
          </div>
          <Button look="primary" type="submit">
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
            Upper and lower case differ
          </label>
        )}
      </form>
      {found.isLoading && <Loading what="what was found" />}
      <div className="p-2">
        <ErrorNote error={found.error} />
        {found.data?.hint && <p className="px-1 pb-2 text-xs text-warn">{found.data.hint}</p>}
        {found.data?.hits.length === 0 && <Empty title="Nothing was found" />}
        {found.data && found.data.hits.length > 0 && <Hits hits={found.data.hits} onShow={onShow} />}
      </div>
    </div>
  );
}

function Hits({ hits, onShow }: { hits: readonly Hit[]; onShow: Props["onShow"] }) {
  return (
    <ul aria-label="What was found" className="space-y-2">
      {grouped(hits).map(([path, found]) => (
        <li key={path}>
          <button
            type="button"
            onClick={() => onShow(path, found[0]?.line)}
            className="block w-full truncate rounded px-1 text-left font-medium hover:bg-accent-soft"
          >
            {path}
          </button>
          {found.map(
            (hit) =>
              hit.line !== undefined && (
                <button
                  key={hit.line}
                  type="button"
                  onClick={() => onShow(path, hit.line)}
                  className="flex w-full gap-2 rounded px-1 text-left font-mono text-xs leading-5 hover:bg-accent-soft"
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
