/** Where a link in a text of a model leads. Pure. */

export interface LinkTarget {
  href: string;
  /** The host or address, if the text of the link does not begin with it. */
  shown: string | null;
}

/** Returns the target of a link; null for what is no address of another site, such as an emptied `javascript:`. */
export function linkTarget(href: string | undefined, text: string): LinkTarget | null {
  let url: URL;
  try {
    url = new URL(href ?? "");
  } catch {
    return null;
  }
  if (url.protocol === "mailto:") return { href: url.href, shown: text === url.pathname ? null : url.pathname };
  if (url.protocol !== "http:" && url.protocol !== "https:") return null;
  // The host as the browser asks for it: without a name before `@`, and other scripts as `xn--…`.
  const { host } = url;
  const rest = [`${url.protocol}//${host}`, host].find((start) => text.toLowerCase().startsWith(start));
  const isNamed = rest !== undefined && /^(?:$|[/?#])/.test(text.slice(rest.length));
  return { href: url.href, shown: isNamed ? null : host };
}
