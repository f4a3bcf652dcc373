/** What an approval of an MCP server gives it access to. */

/** Whether an entry of `access` only says which server it is: it is compared, and means nothing to a person. */
export function isIdentity(entry: string): boolean {
  return entry.startsWith("server:");
}

/** What an MCP server was given, as people read it. */
export function shownAccess(access: readonly string[] | null | undefined): string[] {
  return (access ?? []).filter((entry) => !isIdentity(entry));
}
