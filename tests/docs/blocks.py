"""Finds the fenced blocks of our pages. Does not run them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
_FENCE = re.compile(r"^(?P<indent> *)```(?P<info>[^\n`]*)\n(?P<body>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL)
_TITLE = re.compile(r'title="([^"]+)"')


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block. ``page`` and ``line`` locate it; ``title`` is the name of the file that it shows, if any."""

    page: str
    line: int
    language: str
    title: str | None
    body: str

    @property
    def first_line(self) -> str:
        return next((line.strip() for line in self.body.splitlines() if line.strip()), "")

    def __str__(self) -> str:
        return f"{self.page}:{self.line} ({self.language})"


def pages() -> list[str]:
    """The pages with a block, or with a marker for generated content."""
    found = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*.md")])
    return [str(page.relative_to(ROOT)) for page in found if re.search(r"^ *```|^<!-- from", page.read_text(), re.M)]


def blocks_of(name: str) -> list[Block]:
    """The blocks in the order of the page, with generated content inserted."""
    return list(_found(name, (ROOT / name).read_text(encoding="utf-8")))


def _found(name: str, text: str) -> Iterator[Block]:
    # Imports the complete program, so only when needed.
    from scripts.reference import expanded

    whole = expanded(text)
    for fence in _FENCE.finditer(whole):
        info, indent = fence["info"].strip(), fence["indent"]
        title = _TITLE.search(info)
        body = "".join(line.removeprefix(indent) for line in fence["body"].splitlines(keepends=True))
        yield Block(name, whole.count("\n", 0, fence.start()) + 1, info.partition(" ")[0], title and title[1], body)
