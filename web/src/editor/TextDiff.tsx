/** The diff of two texts: side by side in wide columns, unified in narrow ones. */
import { MergeView, unifiedMergeView } from "@codemirror/merge";
import { EditorState, type Extension } from "@codemirror/state";
import { EditorView, highlightSpecialChars, lineNumbers } from "@codemirror/view";
import { useEffect, useRef } from "react";
import { escaped, PATTERN } from "../components/shownText";
import { useWidth } from "../components/useWidth";
import { languageOf } from "./languages";
import { editorTheme } from "./theme";

interface Props {
  before: string;
  after: string;
  /** Selects the language. */
  path: string;
  label: string;
}

/** Minimum width of two columns, in pixels. */
const ROOM = 900;
const COLLAPSE = { margin: 3, minSize: 6 };
// The cost of a diff grows faster than the texts. Beyond these limits it is less exact, but fast.
const DIFF_LIMITS = { scanLimit: 500, timeout: 500 };

export default function TextDiff({ before, after, path, label }: Props) {
  const container = useRef<HTMLDivElement>(null);
  const width = useWidth(container);
  const isMeasured = width > 0;
  const isWide = width >= ROOM;
  useEffect(() => {
    if (!isMeasured) return;
    let isUnmounted = false;
    let shown: { destroy: () => void } | null = null;
    void languageOf(path).then((language) => {
      if (isUnmounted || container.current === null) return;
      const common = [
        editorTheme(),
        lineNumbers(),
        EditorView.lineWrapping,
        escapes(),
        language ?? [],
        ...readOnly(label),
      ];
      shown = isWide
        ? sideBySide(container.current, before, after, common)
        : unified(container.current, before, after, common);
    });
    return () => {
      isUnmounted = true;
      shown?.destroy();
    };
  }, [before, after, path, label, isMeasured, isWide]);
  return <div ref={container} className="min-h-4 overflow-x-hidden overflow-y-auto rounded-md border border-line" />;
}

function sideBySide(parent: HTMLElement, before: string, after: string, common: Extension): MergeView {
  return new MergeView({
    parent,
    a: { doc: before, extensions: common },
    b: { doc: after, extensions: common },
    collapseUnchanged: COLLAPSE,
    diffConfig: DIFF_LIMITS,
    gutter: true,
  });
}

function unified(parent: HTMLElement, before: string, after: string, common: Extension): EditorView {
  const merge = unifiedMergeView({
    original: before,
    mergeControls: false,
    collapseUnchanged: COLLAPSE,
    diffConfig: DIFF_LIMITS,
  });
  return new EditorView({ parent, state: EditorState.create({ doc: after, extensions: [common, merge] }) });
}

/** Shows deceptive characters as escapes, as in other diffs. */
function escapes(): Extension {
  return highlightSpecialChars({
    specialChars: new RegExp(PATTERN),
    render: (code) => {
      const mark = document.createElement("span");
      mark.className = "rounded-sm bg-warn-soft text-warn";
      mark.textContent = escaped(String.fromCodePoint(code));
      return mark;
    },
  });
}

function readOnly(label: string): Extension[] {
  return [
    EditorState.readOnly.of(true),
    EditorView.editable.of(false),
    EditorView.contentAttributes.of({ "aria-label": label, tabindex: "0" }),
  ];
}
