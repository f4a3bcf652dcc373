/** Rows of data as a table. */
import { EXACT } from "../../../components/Code";
import { escapedLine } from "../../../components/shownText";
import { counted } from "./callView";

export const MOST_ROWS = 200;
const NUMBER = /^-?[\d,]*\.?\d+%?$/;

interface Props {
  columns: readonly string[];
  rows: readonly (readonly string[])[];
  total: number;
}

export function DataTable({ columns, rows, total }: Props) {
  // A heading is where its numbers are.
  const isRight = columns.map((_, number) => rows.length > 0 && rows.every((row) => NUMBER.test(row[number] ?? "")));
  return (
    <div className="overflow-hidden rounded-md border border-line">
      <section aria-label="Result" tabIndex={0} className="max-h-96 overflow-auto -outline-offset-2">
        <table className="w-full text-left text-xs">
          <thead className="sticky top-0 bg-sunken text-muted">
            <tr>
              {columns.map((name, number) => (
                <th
                  // biome-ignore lint/suspicious/noArrayIndexKey: names of columns can repeat
                  key={number}
                  scope="col"
                  className={`px-3 py-1 font-medium whitespace-nowrap ${isRight[number] ? "text-right" : ""}`}
                >
                  {escapedLine(name)}
                </th>
              ))}
            </tr>
          </thead>
          <tbody className="divide-y divide-line">
            {rows.map((row, at) => (
              // biome-ignore lint/suspicious/noArrayIndexKey: rows of data have no other name
              <tr key={at}>
                {columns.map((_, number) => {
                  const cell = row[number] ?? "";
                  return (
                    <td
                      // biome-ignore lint/suspicious/noArrayIndexKey: as above
                      key={number}
                      className={`max-w-80 px-3 py-1 align-top ${NUMBER.test(cell) ? "text-right tabular-nums" : ""} ${EXACT}`}
                    >
                      {escapedLine(cell)}
                    </td>
                  );
                })}
              </tr>
            ))}
          </tbody>
        </table>
      </section>
      {total > rows.length && (
        <p className="border-t border-line px-3 py-1 text-xs text-muted">
          The first {rows.length} of {counted(total, "row")}
        </p>
      )}
    </div>
  );
}
