/** Renders markdown from a model. Renders no raw HTML and loads nothing from other sites. */
import { lazy, memo, Suspense } from "react";
import { blocksOf } from "./markdownBlocks";

const Rendered = lazy(() => import("./MarkdownRendered"));

interface Props {
  text: string;
  /** The text is still streaming: only its last block is parsed again. */
  isGrowing?: boolean;
}

export const Markdown = memo(function Markdown({ text, isGrowing }: Props) {
  const blocks = isGrowing ? blocksOf(text) : [text];
  return (
    <div className="prose">
      <Suspense fallback={<p className="whitespace-pre-wrap">{text}</p>}>
        {blocks.map((block, at) => (
          // biome-ignore lint/suspicious/noArrayIndexKey: blocks are only ever added at the end
          <Rendered key={at} text={block} />
        ))}
      </Suspense>
    </div>
  );
});
