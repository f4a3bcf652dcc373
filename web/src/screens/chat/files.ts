/** The files that a message brings: read in the browser, and checked before they are sent. The server checks them too.
 * Images and PDFs are attached, for models read them; others are put into the workspace, for agents use them there. */
import type { Binary } from "../../api/content";

export interface ChosenFile {
  id: string;
  name: string;
  type: string;
  /** The content of an attachment in base64; of other files, null. */
  data: string | null;
  /** What is put into the workspace; of an attachment, null. */
  content: string | Binary | null;
}

/** The kinds of files that models read, with the most bytes of each. As in the server's `core/attachments.py`. */
const MAX_BYTES: Readonly<Record<string, number>> = {
  "image/png": 5_000_000,
  "image/jpeg": 5_000_000,
  "image/gif": 5_000_000,
  "image/webp": 5_000_000,
  "application/pdf": 10_000_000,
};
/** What tools read and write at most, unless an operator has set another limit. */
const MAX_OTHER_BYTES = 10_000_000;
export const MAX_FILES = 8;
/** The folder of the workspace for files of messages. */
export const FOLDER = "/uploads";

/** Returns why a file cannot be sent; null if it can. */
export function flawOf({ name, type, size }: { name: string; type: string; size: number }): string | null {
  const most = MAX_BYTES[type] ?? MAX_OTHER_BYTES;
  if (size > most) return `${name} is too large: the limit is ${most / 1_000_000} MB.`;
  return null;
}

export async function readFile(file: File): Promise<ChosenFile> {
  // A pasted image has no folder, but some systems give it odd names.
  const name = file.name.replace(/[/\p{Cc}]/gu, "").slice(0, 200) || "file";
  const id = crypto.randomUUID?.() ?? `${Date.now()}-${name}`;
  try {
    if (MAX_BYTES[file.type] !== undefined)
      return { id, name, type: file.type, data: await base64Of(file), content: null };
    const text = textOf(await file.arrayBuffer());
    return {
      id,
      name,
      type: file.type,
      data: null,
      content: text ?? { encoding: "base64", data: await base64Of(file) },
    };
  } catch {
    // The browser's own words do not say which file.
    throw new Error(`${name} cannot be read.`);
  }
}

async function base64Of(file: File): Promise<string> {
  const url = await new Promise<string>((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result));
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
  return url.split(",")[1] ?? "";
}

/** Returns content as text; null if it is something else. */
export function textOf(content: ArrayBuffer): string | null {
  try {
    const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(content);
    return text.includes("\0") ? null : text;
  } catch {
    return null;
  }
}

/** Returns another name for a file: `data-2.csv` for `data.csv`. */
export function numbered(name: string, number: number): string {
  const dot = name.lastIndexOf(".");
  return dot > 0 ? `${name.slice(0, dot)}-${number}${name.slice(dot)}` : `${name}-${number}`;
}

/** Names the files in the message, so that the agent finds them. */
export function withPaths(text: string, paths: readonly string[]): string {
  if (paths.length === 0) return text;
  return `${text}\n\n${paths.length === 1 ? "File" : "Files"} in the workspace: ${paths.join(", ")}`;
}

export function isImage(type: string): boolean {
  return type.startsWith("image/");
}

export function dataUrl(type: string, data: string): string {
  return `data:${type};base64,${data}`;
}
