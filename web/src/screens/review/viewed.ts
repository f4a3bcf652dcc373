/** The files that a person has viewed, by a hash of what was shown: a file that changes is new again. */
import { useEffect, useState } from "react";
import { useMe } from "../../app/me";
import { hashOf, type ReviewFile, shownContent } from "./reviewFiles";

const MOST = 3_000;

export interface Viewed {
  has: (file: ReviewFile) => boolean;
  set: (file: ReviewFile, isViewed: boolean) => void;
  count: number;
}

export function useViewed(files: readonly ReviewFile[]): Viewed {
  const storage = `toolcrib.viewed ${useMe().data?.id ?? ""}`;
  const [marks, setMarks] = useState<ReadonlySet<string>>(() => loaded(storage));
  const [hashes, setHashes] = useState<ReadonlyMap<ReviewFile, string>>(new Map());
  useEffect(() => {
    let isCancelled = false;
    void hashAll(files, () => isCancelled).then((found) => found && setHashes(found));
    return () => {
      isCancelled = true;
    };
  }, [files]);
  const has = (file: ReviewFile) => marks.has(hashes.get(file) ?? "");
  return {
    has,
    set(file, isViewed) {
      const hash = hashes.get(file);
      if (hash === undefined) return;
      const after = new Set(marks);
      after.delete(hash);
      if (isViewed) after.add(hash);
      setMarks(after);
      save(storage, after);
    },
    count: files.filter(has).length,
  };
}

async function hashAll(
  files: readonly ReviewFile[],
  isCancelled: () => boolean,
): Promise<Map<ReviewFile, string> | null> {
  const found = new Map<ReviewFile, string>();
  for (const file of files) {
    found.set(file, await hashOf(shownContent(file)));
    if (isCancelled()) return null;
  }
  return found;
}

function loaded(storage: string): Set<string> {
  try {
    const found: unknown = JSON.parse(localStorage.getItem(storage) ?? "[]");
    return new Set(Array.isArray(found) ? found.map(String) : []);
  } catch {
    return new Set();
  }
}

function save(storage: string, marks: ReadonlySet<string>): void {
  try {
    localStorage.setItem(storage, JSON.stringify([...marks].slice(-MOST)));
  } catch {
    // Full or forbidden: the marks last as long as the page.
  }
}
