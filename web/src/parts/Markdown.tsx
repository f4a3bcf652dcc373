/** What a model wrote, as markdown. No HTML of it becomes the page's, and nothing is fetched from elsewhere for it. */
import { lazy, memo, Suspense } from "react";
import { blocksOf } from "./markdownBlocks";

const Rendered = lazy(() => import("./MarkdownRendered"));

interface Props {
  text: string;
  /** More is coming: only its last block is read anew with every piece. */
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
