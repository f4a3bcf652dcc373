/** What someone has typed and not saved: it outlives a look at another file, though not the page. */
import { create } from "zustand";
import { asText } from "../../api/content";

export interface Draft {
  text: string;
  /** What it began from, and its hash: what others write meanwhile is not overwritten by it. */
  base: { content: unknown; hash: string };
}

interface Drafts {
  of: Readonly<Record<string, Draft>>;
  keep: (file: string, draft: Draft) => void;
  drop: (file: string) => void;
}

export const useDrafts = create<Drafts>((set) => ({
  of: {},
  keep: (file, draft) => set(({ of }) => ({ of: { ...of, [file]: draft } })),
  drop: (file) => set(({ of }) => ({ of: Object.fromEntries(Object.entries(of).filter(([name]) => name !== file)) })),
}));

export function isChanged(draft: Draft): boolean {
  return draft.text !== (asText(draft.base.content) ?? "");
}

/** Leaving the page with something unsaved is asked about by the browser. */
window.addEventListener("beforeunload", (event) => {
  if (Object.values(useDrafts.getState().of).some(isChanged)) event.preventDefault();
});
