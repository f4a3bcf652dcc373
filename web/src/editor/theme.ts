/** The theme of the editor and of diffs: the colours of the page, light and dark. */
import { HighlightStyle, syntaxHighlighting } from "@codemirror/language";
import type { Extension } from "@codemirror/state";
import { EditorView } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { NONCE } from "../components/nonce";

const theme = EditorView.theme({
  "&": { backgroundColor: "var(--surface)", color: "var(--ink)", fontSize: "12.5px", height: "100%" },
  "&.cm-focused": { outline: "2px solid var(--accent)", outlineOffset: "-2px" },
  ".cm-scroller": { fontFamily: "var(--font-mono, ui-monospace, monospace)", lineHeight: "1.55" },
  ".cm-content": { caretColor: "var(--ink)" },
  ".cm-gutters": { backgroundColor: "var(--surface)", color: "var(--muted)", borderRight: "1px solid var(--line)" },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "var(--sunken)" },
  "&.cm-focused .cm-selectionBackground, .cm-selectionBackground": { backgroundColor: "var(--accent-soft) !important" },
  ".cm-cursor": { borderLeftColor: "var(--ink)" },
  ".cm-panels": { backgroundColor: "var(--sunken)", color: "var(--ink)" },
  ".cm-searchMatch": { backgroundColor: "var(--warn-soft)", outline: "1px solid var(--warn)" },
  ".cm-line.cm-target": { backgroundColor: "var(--accent-soft)" },
  ".cm-collapsedLines": {
    color: "var(--accent)",
    background: "var(--sunken)",
    borderBlock: "1px solid var(--line)",
    padding: "2px 12px",
  },
  ".cm-deletedChunk, .cm-merge-a .cm-changedLine": { backgroundColor: "var(--bad-soft)" },
  ".cm-changedLine, &.cm-merge-b .cm-changedLine, .cm-insertedLine": { backgroundColor: "var(--good-soft)" },
  "&.cm-merge-a .cm-changedLine": { backgroundColor: "var(--bad-soft)" },
  "&.cm-merge-a .cm-changedText, .cm-deletedChunk .cm-deletedText": {
    background: "color-mix(in srgb, var(--bad) 25%, transparent)",
  },
  "&.cm-merge-b .cm-changedText, .cm-changedText": {
    background: "color-mix(in srgb, var(--good) 25%, transparent)",
  },
  // The colours of the syntax have too little contrast with these.
  ".cm-changedText, .cm-changedText *, .cm-deletedText, .cm-deletedText *": { color: "var(--ink)" },
});

const colours = HighlightStyle.define([
  { tag: [tags.keyword, tags.operatorKeyword, tags.modifier, tags.tagName], color: "var(--accent)" },
  { tag: [tags.string, tags.special(tags.string), tags.regexp], color: "var(--good)" },
  { tag: [tags.number, tags.bool, tags.null, tags.atom, tags.attributeName], color: "var(--warn)" },
  { tag: [tags.comment, tags.meta], color: "var(--muted)", fontStyle: "italic" },
  { tag: [tags.heading, tags.strong], fontWeight: "600" },
  { tag: tags.emphasis, fontStyle: "italic" },
  { tag: [tags.link, tags.url], color: "var(--accent)", textDecoration: "underline" },
  { tag: tags.invalid, color: "var(--bad)" },
]);

/** Extensions for every editor view. The content security policy allows its styles by the nonce. */
export function editorTheme(): Extension {
  return [EditorView.cspNonce.of(NONCE), theme, syntaxHighlighting(colours)];
}
