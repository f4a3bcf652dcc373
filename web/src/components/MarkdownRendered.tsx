/** Loaded with the first message: the parser is larger than the rest of the chat. */
import { isValidElement, memo, type ReactNode } from "react";
import ReactMarkdown, { type Components } from "react-markdown";
import remarkGfm from "remark-gfm";
import { Code } from "./Code";
import { linkTarget } from "./links";
import { escapedLine } from "./shownText";

const COMPONENTS: Components = {
  a: ({ href, children }) => <Link href={href}>{children}</Link>,
  // Loading an image would reveal the reader to another site.
  img: ({ src, alt }) => <Link href={typeof src === "string" ? src : undefined}>{alt || "Image"}</Link>,
  pre: ({ children }) => <Code text={textOf(children).replace(/\n$/, "")} label="Code" />,
};
const PLUGINS = [remarkGfm];

export default memo(function MarkdownRendered({ text }: { text: string }) {
  return (
    <ReactMarkdown remarkPlugins={PLUGINS} components={COMPONENTS}>
      {text}
    </ReactMarkdown>
  );
});

/** The text of a link is the model's, so where it leads stands beside it. */
function Link({ href, children }: { href: string | undefined; children: ReactNode }) {
  const target = linkTarget(href, textOf(children));
  if (target === null) return <span>{children}</span>;
  return (
    <>
      <a href={target.href} title={escapedLine(target.href)} target="_blank" rel="noreferrer noopener">
        {children}
      </a>
      {target.shown !== null && <span className="text-xs text-muted"> ({escapedLine(target.shown)})</span>}
    </>
  );
}

function textOf(node: ReactNode): string {
  if (typeof node === "string" || typeof node === "number") return String(node);
  if (Array.isArray(node)) return node.map(textOf).join("");
  return isValidElement<{ children?: ReactNode }>(node) ? textOf(node.props.children) : "";
}
