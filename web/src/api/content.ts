/** File content from the server: text, a JSON value, or binary. */

/** Binary content, as the server returns and takes it. */
export interface Binary {
  encoding: "base64";
  data: string;
}

/** Returns the content as text; null for binary content. */
export function asText(content: unknown): string | null {
  if (content === null || content === undefined || isBinary(content)) return null;
  return typeof content === "string" ? content : JSON.stringify(content, null, 2);
}

export function isBinary(content: unknown): content is Binary {
  return (
    typeof content === "object" &&
    content !== null &&
    Object.keys(content).length === 2 &&
    "encoding" in content &&
    content.encoding === "base64"
  );
}
