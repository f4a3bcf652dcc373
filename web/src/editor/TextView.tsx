/** A text with line numbers, read-only or editable. */
import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { highlightSelectionMatches, searchKeymap } from "@codemirror/search";
import { Compartment, EditorState } from "@codemirror/state";
import { Decoration, drawSelection, EditorView, highlightActiveLine, keymap, lineNumbers } from "@codemirror/view";
import { useEffect, useRef } from "react";
import { languageOf } from "./languages";
import { editorTheme } from "./theme";

interface Props {
  text: string;
  /** Selects the language. */
  path: string;
  label: string;
  /** Without it, the text is read-only. */
  onChange?: (text: string) => void;
  onSave?: () => void;
  /** Takes the focus as soon as it is shown. */
  hasFocus?: boolean;
  /** A line to show, counted from 1. */
  line?: number | undefined;
}

export default function TextView({ text, path, label, onChange, onSave, hasFocus, line }: Props) {
  const container = useRef<HTMLDivElement>(null);
  const view = useRef<EditorView>(null);
  const handlers = useRef({ onChange, onSave });
  handlers.current = { onChange, onSave };
  const isEditable = onChange !== undefined;

  useEffect(() => {
    if (container.current === null) return;
    const language = new Compartment();
    const editor = new EditorView({
      parent: container.current,
      state: EditorState.create({
        doc: text,
        extensions: [
          editorTheme(),
          lineNumbers(),
          drawSelection(),
          highlightSelectionMatches(),
          language.of([]),
          EditorView.lineWrapping,
          EditorView.contentAttributes.of({ "aria-label": label, tabindex: "0" }),
          keymap.of([
            { key: "Mod-s", preventDefault: true, run: () => runSave(handlers.current.onSave) },
            ...searchKeymap,
            ...historyKeymap,
            ...defaultKeymap,
          ]),
          isEditable ? editable() : readOnly(),
          EditorView.updateListener.of((update) => {
            if (update.docChanged) handlers.current.onChange?.(update.state.doc.toString());
          }),
        ],
      }),
    });
    view.current = editor;
    if (hasFocus) editor.focus();
    let isUnmounted = false;
    void languageOf(path).then(
      (found) => isUnmounted || editor.dispatch({ effects: language.reconfigure(found ?? []) }),
    );
    return () => {
      isUnmounted = true;
      editor.destroy();
      view.current = null;
    };
  }, [text, path, label, isEditable, hasFocus]);

  useEffect(() => {
    const editor = view.current;
    if (editor === null || line === undefined || line < 1 || line > editor.state.doc.lines) return;
    const at = editor.state.doc.line(line);
    editor.dispatch({ selection: { anchor: at.from }, effects: EditorView.scrollIntoView(at.from, { y: "center" }) });
  }, [line]);

  return <div ref={container} className="h-full min-h-0 overflow-hidden" />;
}

/** Handles the key even if there is nothing to save. */
function runSave(save: (() => void) | undefined): boolean {
  save?.();
  return true;
}

function editable() {
  // Tab indents only while editing. In a read-only view, or after Escape, it moves the focus.
  return [history(), highlightActiveLine(), keymap.of([indentWithTab])];
}

function readOnly() {
  return [EditorState.readOnly.of(true), EditorView.editable.of(false), highlightTarget()];
}

/** Marks the requested line, since a read-only view shows no cursor. */
function highlightTarget() {
  const mark = Decoration.line({ class: "cm-target" });
  return EditorView.decorations.compute(["selection"], (state) =>
    state.selection.main.head === 0
      ? Decoration.none
      : Decoration.set([mark.range(state.doc.lineAt(state.selection.main.head).from)]),
  );
}
