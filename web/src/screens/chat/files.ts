/** The files that a message brings: read in the browser, and checked before they are sent. The server checks them too. */

export interface ChosenFile {
  id: string;
  name: string;
  type: string;
  /** The content in base64. */
  data: string;
}

/** The kinds of files that models read, with the most bytes of each. As in the server's `core/attachments.py`. */
const MAX_BYTES: Readonly<Record<string, number>> = {
  "image/png": 5_000_000,
  "image/jpeg": 5_000_000,
  "image/gif": 5_000_000,
  "image/webp": 5_000_000,
  "application/pdf": 10_000_000,
};
export const MAX_FILES = 8;
export const ACCEPTED = Object.keys(MAX_BYTES).join(",");

/** Returns why a file cannot be sent; null if it can. */
export function flawOf({ name, type, size }: { name: string; type: string; size: number }): string | null {
  const most = MAX_BYTES[type];
  if (most === undefined) return `${name} is not an image (PNG, JPEG, GIF, WebP) or a PDF.`;
  if (size > most) return `${name} is too large: the limit is ${most / 1_000_000} MB.`;
  return null;
}

export async function readFile(file: File): Promise<ChosenFile> {
  const url = await new Promise<string>((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result));
    reader.onerror = () => reject(new Error(`${file.name} cannot be read.`));
    reader.readAsDataURL(file);
  });
  // A pasted image has no folder, but some systems give it odd names.
  const name = file.name.replace(/[/\p{Cc}]/gu, "").slice(0, 200) || "file";
  return { id: crypto.randomUUID?.() ?? `${Date.now()}-${name}`, name, type: file.type, data: url.split(",")[1] ?? "" };
}

export function isImage(type: string): boolean {
  return type.startsWith("image/");
}

export function dataUrl(type: string, data: string): string {
  return `data:${type};base64,${data}`;
}
