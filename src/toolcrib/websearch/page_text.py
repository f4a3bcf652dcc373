"""Extracts the readable text of a web page. Runs in a worker, because the input is untrusted."""

from typing import Final

from toolcrib.core.errors import ToolFailed
from toolcrib.websearch.text_sanitizer import to_plain_lines, to_plain_text

# More than anybody pages through.
MOST_CHARACTERS: Final = 1_000_000
_MOST_TITLE: Final = 300
HTML_TYPES: Final = frozenset({"text/html", "application/xhtml+xml"})


def page_text(body: bytes, content_type: str, charset: str | None) -> tuple[str, str]:
    """Return the title and the text of a page: HTML as Markdown without its navigation, other text as it is.

    Raises:
        ToolFailed: It has no readable text.
    """
    if content_type not in HTML_TYPES:
        return "", to_plain_lines(_decoded(body, charset or "utf-8")[:MOST_CHARACTERS])
    try:
        title, text = _html_text(_decoded(body, charset) if charset else body)
    except RecursionError:
        raise ToolFailed("The page is nested too deeply to be read.") from None
    return to_plain_text(title, most=_MOST_TITLE), to_plain_lines(text[:MOST_CHARACTERS])


def _html_text(page: str | bytes) -> tuple[str, str]:
    # Here, because the server itself only names this module, and starts without the library.
    import trafilatura

    tree = trafilatura.load_html(page)
    if tree is None:
        raise ToolFailed("The page is empty, or its content is not HTML.")
    title = tree.findtext(".//title") or ""
    text = trafilatura.extract(
        tree,
        output_format="markdown",
        favor_recall=True,
        include_comments=True,
        include_formatting=True,
        include_links=True,
        include_tables=True,
    )
    # A page that is no article, such as a list of links, has no main part: then all of its text counts.
    return title, text or trafilatura.html2txt(tree)


def _decoded(body: bytes, charset: str) -> str:
    try:
        return body.decode(charset, errors="replace")
    except (LookupError, ValueError):
        return body.decode("utf-8", errors="replace")
