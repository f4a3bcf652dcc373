"""Shows Markdown while it grows: at every moment the same as if all of it had been given at once."""

from collections.abc import Mapping
from dataclasses import dataclass

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markdown_it.utils import EnvType
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Markdown

# The targets of links by their labels, from lines such as ``[label]: https://…``. They hold for the whole text,
# wherever in it they are.
References = Mapping[str, Mapping[str, str]]


class StreamedMarkdown(Vertical):
    """A text that grows. What is shown depends on the text alone, not on the pieces in which it arrived.

    Only the last block can change when text is added: the next line continues it, begins another one, or makes it
    something else. So the last block is in a widget of its own, which is replaced whole, and what is before it stays.
    ``Markdown.append`` is no alternative: it guesses which lines to parse again, and loses text where it is wrong.
    """

    def __init__(self, text: str, *, classes: str | None = None) -> None:
        super().__init__(classes=classes)
        self._text = text
        # What precedes the last piece, and the references in it.
        self._settled = ""
        self._references: References = {}
        self._pieces: list[_Piece] = []

    def compose(self) -> ComposeResult:
        cut = self._cut()
        self._pieces = [_Piece(source, cut.references) for source in cut.sources]
        yield from self._pieces

    async def show_text(self, text: str) -> None:
        """Shows another text. Of one that begins with the text before, only the end is parsed."""
        if text == self._text:
            return
        self._text = text
        with self.app.batch_update():
            if not text.startswith(self._settled):
                self._settled, self._references = "", {}
                await self.remove_children(self._pieces[1:])
                del self._pieces[1:]
            cut = self._cut()
            for piece in self._pieces[:-1]:
                # It may have a link to what is defined only now.
                await piece.show(piece.text, cut.references)
            await self._pieces[-1].show(cut.sources[0], cut.references)
            new = [_Piece(source, cut.references) for source in cut.sources[1:]]
            self._pieces += new
            await self.mount_all(new)

    def _cut(self) -> "_Cut":
        """Cuts what follows the settled text. What is before the cut is settled from now on."""
        cut = _cut(self._text[len(self._settled) :], self._references)
        self._settled, self._references = self._settled + cut.settled, cut.settled_references
        return cut


class _Piece(Markdown):
    """Some blocks of a text. Shows links, but does not open them."""

    def __init__(self, text: str, references: References) -> None:
        self.text = text
        self._references = references
        super().__init__(text, parser_factory=lambda: _BlockParser(self._references), open_links=False)

    async def show(self, text: str, references: References) -> None:
        has_changed = text != self.text or ("[" in text and references != self._references)
        self.text, self._references = text, references
        if has_changed:
            await self.update(text)


class _BlockParser(MarkdownIt):
    """A parser of a part of a text. Knows the link references of the whole.

    Without HTML, which the widgets would leave out: much that looks like a tag is none, such as ``Vec<String>``.
    """

    def __init__(self, references: References) -> None:
        super().__init__("gfm-like", {"html": False})
        self._references = references

    def parse(self, src: str, env: EnvType | None = None) -> list[Token]:
        env = {} if env is None else env
        env["references"] = dict(self._references)
        return super().parse(src, env)


@dataclass(frozen=True, slots=True)
class _Cut:
    """A text, cut where its last block begins. The references are those before the cut, and all."""

    settled: str
    last: str
    settled_references: References
    references: References

    @property
    def sources(self) -> list[str]:
        return [self.settled, self.last] if self.settled else [self.last]


def _cut(text: str, before: References) -> _Cut:
    """Cuts a text. ``before``: the references of what precedes it."""
    parser = _BlockParser(before)
    # Where blocks begin does not depend on the text in them.
    parser.core.ruler.enableOnly(["normalize", "block"])
    env: EnvType = {}
    tokens = parser.parse(text, env)
    first_lines = [token.map[0] for token in tokens if token.level == 0 and token.map is not None]
    # The first block has all that precedes it: empty lines, and references.
    last_line = first_lines[-1] if len(first_lines) > 1 else 0
    settled, references = dict(before), dict(before)
    for label, target in env["references"].items():
        if label not in before:
            references[label] = {"href": target["href"], "title": target["title"]}
            if target["map"][0] < last_line:
                settled[label] = references[label]
    lines = text.split("\n", last_line)
    last = lines[-1]
    return _Cut(text[: len(text) - len(last)], last, settled, references)
