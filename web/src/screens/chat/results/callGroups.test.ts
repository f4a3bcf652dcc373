import { expect, test } from "vitest";
import type { Call, Row } from "../../../events/conversation";
import { groupedRows, summaryOfGroup } from "./callGroups";

function rowsOf(...rows: { id: string; name?: string; result?: string | null }[]) {
  const made = rows.map(({ id, name, result = "done" }) =>
    name === undefined
      ? ({ kind: "note", id } as Row)
      : ({ kind: "call", id, name, result, child: null, pause: null } as unknown as Row),
  );
  return { order: made.map((row) => row.id), rows: Object.fromEntries(made.map((row) => [row.id, row])) };
}

test("two or more finished calls in a row are a group; one alone and a running one are not", () => {
  const { order, rows } = rowsOf(
    { id: "1", name: "read" },
    { id: "2", name: "read" },
    { id: "note" },
    { id: "3", name: "bash" },
    { id: "4", name: "bash", result: null },
  );
  const closed = groupedRows({ order, rows }, () => false);
  expect(closed.map((item) => item.id)).toEqual(["group-1", "note", "3", "4"]);
  const open = groupedRows({ order, rows }, () => true);
  expect(open.map((item) => item.id)).toEqual(["group-1", "1", "2", "note", "3", "4"]);
});

test("the summary counts what was done", () => {
  const names = ["read", "read", "bash", "read_multiple_files", "grep"];
  expect(summaryOfGroup(names.map((name) => ({ name })) as Call[])).toBe(
    "Read 3 files, ran 1 command, searched 1 time",
  );
});
