/** File content from the server: text, a JSON value, or binary. */

/** Returns the content as text; null for binary content. */
export function asText(content: unknown): string | null {
  if (content === null || content === undefined || isBinary(content)) return null;
  return typeof content === "string" ? content : JSON.stringify(content, null, 2);
}

export function isBinary(content: unknown): boolean {
  return (
    typeof content === "object" &&
    content !== null &&
    Object.keys(content).length === 2 &&
    "encoding" in content &&
    content.encoding === "base64"
  );
}
