import type { ReactNode } from "react";

export interface Column<Row> {
  title: string;
  cell: (row: Row) => ReactNode;
  /** For numbers and buttons. */
  isRight?: boolean;
}

interface Props<Row> {
  /** Label for screen readers. */
  label: string;
  columns: readonly Column<Row>[];
  rows: readonly Row[];
  keyOf: (row: Row) => string;
}

/** A table that scrolls horizontally on narrow screens. */
export function Table<Row>({ label, columns, rows, keyOf }: Props<Row>) {
  return (
    <section className="overflow-x-auto rounded-lg border border-line bg-surface" tabIndex={0} aria-label={label}>
      <table className="w-full text-left text-sm">
        <thead className="border-b border-line bg-sunken text-xs text-muted">
          <tr>
            {columns.map((column) => (
              <th
                key={column.title}
                scope="col"
                className={`px-3 py-2 font-medium ${column.isRight ? "text-right" : ""}`}
              >
                {column.title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody className="divide-y divide-line">
          {rows.map((row) => (
            <tr key={keyOf(row)} className="hover:bg-accent-soft/50">
              {columns.map((column) => (
                <td key={column.title} className={`px-3 py-2 align-top ${column.isRight ? "text-right" : ""}`}>
                  {column.cell(row)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}
