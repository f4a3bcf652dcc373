/** Two texts and what differs: side by side where there is room, one under the other where there is not. */
import { MergeView, unifiedMergeView } from "@codemirror/merge";
import { EditorState, type Extension } from "@codemirror/state";
import { EditorView, lineNumbers } from "@codemirror/view";
import { useEffect, useRef } from "react";
import { languageOf } from "./languages";
import { look } from "./look";

interface Props {
  before: string;
  after: string;
  /** Tells the language. */
  path: string;
  label: string;
}

const ROOM = "(min-width: 900px)";
const COLLAPSE = { margin: 3, minSize: 6 };
// Comparing costs time that grows faster than the texts; beyond this it is less exact, and quick.
const EFFORT = { scanLimit: 500, timeout: 500 };

export default function TextDiff({ before, after, path, label }: Props) {
  const place = useRef<HTMLDivElement>(null);
  useEffect(() => {
    let isGone = false;
    let shown: { destroy: () => void } | null = null;
    void languageOf(path).then((language) => {
      if (isGone || place.current === null) return;
      const common = [look(), lineNumbers(), EditorView.lineWrapping, language, ...reading(label)];
      shown = matchMedia(ROOM).matches
        ? sideBySide(place.current, before, after, common)
        : oneUnderTheOther(place.current, before, after, common);
    });
    return () => {
      isGone = true;
      shown?.destroy();
    };
  }, [before, after, path, label]);
  return <div ref={place} className="overflow-auto rounded-md border border-line" />;
}

function sideBySide(parent: HTMLElement, before: string, after: string, common: Extension): MergeView {
  return new MergeView({
    parent,
    a: { doc: before, extensions: common },
    b: { doc: after, extensions: common },
    collapseUnchanged: COLLAPSE,
    diffConfig: EFFORT,
    gutter: true,
  });
}

function oneUnderTheOther(parent: HTMLElement, before: string, after: string, common: Extension): EditorView {
  const merge = unifiedMergeView({
    original: before,
    mergeControls: false,
    collapseUnchanged: COLLAPSE,
    diffConfig: EFFORT,
  });
  return new EditorView({ parent, state: EditorState.create({ doc: after, extensions: [common, merge] }) });
}

function reading(label: string): Extension[] {
  return [
    EditorState.readOnly.of(true),
    EditorView.editable.of(false),
    EditorView.contentAttributes.of({ "aria-label": label, tabindex: "0" }),
  ];
}
