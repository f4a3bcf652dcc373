/** Unsaved edits. They survive switching files, but not a reload of the page. */
import { create } from "zustand";
import { asText } from "../../api/content";

export interface Draft {
  text: string;
  /** The edited content and its hash, to detect conflicting changes. */
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

/** The browser asks before it leaves the page with unsaved edits. */
window.addEventListener("beforeunload", (event) => {
  if (Object.values(useDrafts.getState().of).some(isChanged)) event.preventDefault();
});
