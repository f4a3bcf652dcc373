/** Picks the language of a file by its name. Each language is loaded with the first file that needs it. */
import type { LanguageSupport } from "@codemirror/language";

const LOADERS: readonly [RegExp, () => Promise<LanguageSupport>][] = [
  [/\.(md|markdown|plan|mdx)$/i, async () => (await import("@codemirror/lang-markdown")).markdown()],
  [/\.pyi?$/i, async () => (await import("@codemirror/lang-python")).python()],
  [/\.tsx$/i, async () => (await import("@codemirror/lang-javascript")).javascript({ jsx: true, typescript: true })],
  [/\.[cm]?ts$/i, async () => (await import("@codemirror/lang-javascript")).javascript({ typescript: true })],
  [/\.[cm]?jsx?$/i, async () => (await import("@codemirror/lang-javascript")).javascript({ jsx: true })],
  [/\.(json|jsonc|webmanifest)$/i, async () => (await import("@codemirror/lang-json")).json()],
  [/\.css$/i, async () => (await import("@codemirror/lang-css")).css()],
  [/\.(html?|svg|xml|vue)$/i, async () => (await import("@codemirror/lang-html")).html()],
  [/\.ya?ml$/i, async () => (await import("@codemirror/lang-yaml")).yaml()],
];

/** Returns the language of a path, or null for plain text. */
export async function languageOf(path: string): Promise<LanguageSupport | null> {
  const found = LOADERS.find(([pattern]) => pattern.test(path));
  return found === undefined ? null : found[1]();
}
