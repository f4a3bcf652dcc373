"""The mkdocs hook for pages: inserts generated text, and turns links that leave the docs into plain text."""

import re
from pathlib import Path
from typing import Any

from scripts import reference

ROOT = Path(__file__).resolve().parent.parent
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((?![a-z]+:|#)([^)\s#]+)(#[^)]*)?\)")


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    folder = (ROOT / "docs" / page.file.src_uri).parent
    return _LINK.sub(lambda found: _link(folder, found), reference.expanded(markdown))


def _link(folder: Path, found: re.Match[str]) -> str:
    """Keep a link within the docs. The site does not contain the rest of the repository."""
    target = (folder / found[2]).resolve()
    return found[0] if target.is_relative_to(ROOT / "docs") else found[1]
