/** Renders markdown from a model. Renders no raw HTML and loads nothing from other sites. */
import { lazy, memo, Suspense, useDeferredValue, useMemo } from "react";
import { blocksOf, sectionsOf } from "./markdownBlocks";

const Rendered = lazy(() => import("./MarkdownRendered"));

interface Props {
  text: string;
  /** The text is still streaming: only its last block is parsed again. */
  isGrowing?: boolean;
}

export const Markdown = memo(function Markdown({ text, isGrowing }: Props) {
  const parts = useMemo(() => (isGrowing ? blocksOf(text) : sectionsOf(text)), [text, isGrowing]);
  // A long text would block the page while it is parsed: what follows its beginning is added when there is time.
  const deferred = useDeferredValue(parts, parts.slice(0, 1));
  return (
    <div className="prose">
      <Suspense fallback={<p className="whitespace-pre-wrap">{text}</p>}>
        {(isGrowing ? parts : deferred).map((part, at) => (
          // biome-ignore lint/suspicious/noArrayIndexKey: parts are only ever added at the end
          <Rendered key={at} text={part} />
        ))}
      </Suspense>
    </div>
  );
});
