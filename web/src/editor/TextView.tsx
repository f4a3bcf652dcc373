/** A text with line numbers: to read, or to write. */
import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { highlightSelectionMatches, searchKeymap } from "@codemirror/search";
import { Compartment, EditorState } from "@codemirror/state";
import { Decoration, drawSelection, EditorView, highlightActiveLine, keymap, lineNumbers } from "@codemirror/view";
import { useEffect, useRef } from "react";
import { languageOf } from "./languages";
import { look } from "./look";

interface Props {
  text: string;
  /** Tells the language. */
  path: string;
  label: string;
  /** Without it, the text can only be read. */
  onChange?: (text: string) => void;
  onSave?: () => void;
  /** A line to show, counted from 1. */
  line?: number | undefined;
}

export default function TextView({ text, path, label, onChange, onSave, line }: Props) {
  const place = useRef<HTMLDivElement>(null);
  const view = useRef<EditorView>(null);
  const heard = useRef({ onChange, onSave });
  heard.current = { onChange, onSave };
  const isEditable = onChange !== undefined;

  useEffect(() => {
    if (place.current === null) return;
    const language = new Compartment();
    const made = new EditorView({
      parent: place.current,
      state: EditorState.create({
        doc: text,
        extensions: [
          look(),
          lineNumbers(),
          drawSelection(),
          highlightSelectionMatches(),
          language.of([]),
          EditorView.lineWrapping,
          EditorView.contentAttributes.of({ "aria-label": label, tabindex: "0" }),
          keymap.of([
            { key: "Mod-s", preventDefault: true, run: () => saved(heard.current.onSave) },
            ...searchKeymap,
            ...historyKeymap,
            ...defaultKeymap,
          ]),
          isEditable ? editing() : reading(),
          EditorView.updateListener.of((update) => {
            if (update.docChanged) heard.current.onChange?.(update.state.doc.toString());
          }),
        ],
      }),
    });
    view.current = made;
    let isGone = false;
    void languageOf(path).then((found) => isGone || made.dispatch({ effects: language.reconfigure(found) }));
    return () => {
      isGone = true;
      made.destroy();
      view.current = null;
    };
  }, [text, path, label, isEditable]);

  useEffect(() => {
    const made = view.current;
    if (made === null || line === undefined || line < 1 || line > made.state.doc.lines) return;
    const at = made.state.doc.line(line);
    made.dispatch({ selection: { anchor: at.from }, effects: EditorView.scrollIntoView(at.from, { y: "center" }) });
  }, [line]);

  return <div ref={place} className="h-full min-h-0 overflow-hidden" />;
}

/** The key is ours, whether or not there is something to save. */
function saved(save: (() => void) | undefined): boolean {
  save?.();
  return true;
}

function editing() {
  // Tab indents only while someone writes; reading, it goes on to what comes next, and Escape lets it do so here too.
  return [history(), highlightActiveLine(), keymap.of([indentWithTab])];
}

function reading() {
  return [EditorState.readOnly.of(true), EditorView.editable.of(false), highlightTarget()];
}

/** The line that was asked for is marked, since nothing can be typed that a cursor would be for. */
function highlightTarget() {
  const mark = Decoration.line({ class: "cm-target" });
  return EditorView.decorations.compute(["selection"], (state) =>
    state.selection.main.head === 0
      ? Decoration.none
      : Decoration.set([mark.range(state.doc.lineAt(state.selection.main.head).from)]),
  );
}
