"""Expected screens: text files in this directory, and some images for the documentation.

``TOOLCRIB_WRITE_SCREENS=1`` writes them again from the test's terminal.
"""

import os
import re
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.text import Text

from tests.acceptance.terminal.tmux import COLUMNS, Screen, applied

_DIRECTORY = Path(__file__).parent / "screens"
_IMAGES = Path(__file__).parents[3] / "docs" / "images"
_SHOWN_IN_DOCS = ("approval", "plan", "question", "undo")
_WRITES = "TOOLCRIB_WRITE_SCREENS" in os.environ


def looks_like(screen: Screen, name: str, *wanted: str) -> None:
    """Waits until the screen equals its file; ``wanted`` is the text to wait for first."""
    file = _DIRECTORY / f"{name}.txt"
    if _WRITES:
        screen.shows(*wanted)
        _write(file, applied(screen.rests()) + "\n")
        if name in _SHOWN_IN_DOCS:
            _write(_IMAGES / f"terminal-{name}.svg", _image(screen.coloured(), name))
        return
    expected = file.read_text().rstrip("\n")
    assert all(text in expected for text in wanted), f"{file.name} lacks one of {wanted}"
    screen.until(lambda shown: applied(shown) == expected, f"The screen {file.name}:\n{expected}\n")


def _image(coloured: str, name: str) -> str:
    console = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True)
    console.print(Text.from_ansi(coloured), no_wrap=True, crop=True)
    drawn = console.export_svg(title="toolcrib", unique_id=f"terminal-{name}")
    # An image loads no fonts: any monospace font of the reader's machine will do.
    return re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL)


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
