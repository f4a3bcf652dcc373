/** The query of the address. The one of wouter is decoded twice, so that `/a%2fb.md` would name another file. */
import { useCallback, useMemo } from "react";
import { navigate, useSearch } from "wouter/use-browser-location";

/** Null removes a parameter. */
export type QueryChange = Readonly<Record<string, string | null>>;

export function useQueryParameters(): [URLSearchParams, (change: QueryChange) => void] {
  const search = useSearch();
  const parameters = useMemo(() => new URLSearchParams(search), [search]);
  // From the address and not from the last render, so that two changes in a row both count.
  const change = useCallback((to: QueryChange) => navigate(location.pathname + changedQuery(location.search, to)), []);
  return [parameters, change];
}

/** Returns the query with its question mark, or nothing. */
export function changedQuery(search: string, change: QueryChange): string {
  const parameters = new URLSearchParams(search);
  for (const [name, value] of Object.entries(change)) {
    if (value === null) parameters.delete(name);
    else parameters.set(name, value);
  }
  const text = parameters.toString();
  return text === "" ? "" : `?${text}`;
}
