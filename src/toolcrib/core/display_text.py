"""Escapes text for display, so that it cannot look other than it is.

The web UI has the same table. ``tests/shown_text_cases.json`` has the cases that both must agree on.
"""

import re
from typing import Final

# First and last code points to escape: controls, bidirectional marks, invisible and blank characters, variation
# selectors, tags, private use and noncharacters. Newline and tab stay.
ESCAPED: Final[tuple[tuple[int, int], ...]] = (
    (0x0000, 0x0008),
    (0x000B, 0x001F),
    (0x007F, 0x00A0),
    (0x00AD, 0x00AD),
    (0x034F, 0x034F),
    (0x061C, 0x061C),
    (0x115F, 0x1160),
    (0x1680, 0x1680),
    (0x17B4, 0x17B5),
    (0x180B, 0x180F),
    (0x2000, 0x200F),
    (0x2028, 0x202F),
    (0x205F, 0x206F),
    (0x2800, 0x2800),
    (0x3164, 0x3164),
    (0xD800, 0xF8FF),
    (0xFDD0, 0xFDEF),
    (0xFE00, 0xFE0F),
    (0xFEFF, 0xFEFF),
    (0xFFA0, 0xFFA0),
    (0xFFF0, 0xFFFC),
    (0xFFFE, 0xFFFF),
    (0x13430, 0x1345F),
    (0x1BCA0, 0x1BCAF),
    (0x1D173, 0x1D17A),
    (0xE0000, 0x10FFFF),
)
_ESCAPED = re.compile("[" + "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in ESCAPED) + "]")
_ENDS = str.maketrans({"\n": "\\n", "\t": "\\t"})


def escape(text: str) -> str:
    r"""Escape every deceptive character as ``\u202e`` or ``\U000e0041``. Line breaks stay."""
    return _ESCAPED.sub(_escape, text)


def escape_line(text: str) -> str:
    """Escape text that is one line, such as a path or a host: newlines and tabs too."""
    return escape(text).translate(_ENDS)


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
