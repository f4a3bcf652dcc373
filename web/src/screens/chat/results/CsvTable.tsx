/** The text of a file as a table, or as it is if it is not one. Apart, because the parser is large. */
import Papa from "papaparse";
import { useMemo } from "react";
import { Code } from "../../../components/Code";
import { DataTable, MOST_ROWS } from "./DataTable";

export default function CsvTable({ text }: { text: string }) {
  const rows = useMemo(() => Papa.parse<string[]>(text.trimEnd(), { skipEmptyLines: true }).data, [text]);
  const [head, ...body] = rows;
  if (head === undefined || head.length < 2 || body.length === 0) return <Code text={text} label="Result" />;
  return <DataTable columns={head} rows={body.slice(0, MOST_ROWS)} total={body.length} />;
}
