/** What the server tells as a file's content: text, a value that was written as JSON, or what is neither. */

/** A content as text; null for what is none. */
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
