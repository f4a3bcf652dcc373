"""Words and addresses from the web, made harmless: they come from strangers and are read by models and terminals."""

import html
import re
import unicodedata
from typing import Any
from urllib.parse import urlsplit

_MOST_ADDRESS = 2_000
# Engines mark what matched, and some give whole fragments. Other angle brackets are the author's: List<String>.
_TAG = re.compile(
    r"</?(?:a|abbr|b|big|blockquote|br|cite|code|dd|div|dl|dt|em|font|h[1-6]|hr|i|img|li|mark|ol|p|pre|q|s|script|"
    r"small|span|strong|style|sub|sup|table|tbody|td|th|thead|time|tr|tt|u|ul|var|wbr)(?:\s[^<>]*)?/?>",
    re.IGNORECASE,
)
# Colours, titles and the like: ESC [ … m, ESC ] … BEL, and their one-character forms.
_TERMINAL = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?|\x1b."
)
# Format characters that writing needs: the joiners of Persian, of Indian scripts and of emoji.
_JOINERS = "\u200c\u200d"
_UNSEEN = {"Cc", "Cf", "Cs", "Co", "Cn"}


def plain(value: Any, *, most: int) -> str:
    """A text as one line without markup, commands or unseen characters; empty if it is no text."""
    if not isinstance(value, str):
        return ""
    # Cut first, since what follows costs time per character, and generously, since markup goes away.
    text = one_line(html.unescape(_TAG.sub(" ", value[: 8 * most])))
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def one_line(text: str) -> str:
    """A text as one line without commands to a terminal or unseen characters; its markup stays."""
    text = _TERMINAL.sub(" ", text)
    text = "".join(character if _is_seen(character) else " " if character.isspace() else "" for character in text)
    return " ".join(text.split())


def web_address(value: Any) -> str | None:
    """The address, if it is one of the web that shows where it leads; none of ``javascript:`` or ``bank.org@evil``."""
    if not isinstance(value, str):
        return None
    address = value.strip()
    if len(address) > _MOST_ADDRESS or not address.isprintable() or any(map(str.isspace, address)):
        return None
    try:
        parts = urlsplit(address)
        good = parts.scheme in ("http", "https") and parts.hostname and "@" not in parts.netloc and parts.port != 0
    except ValueError:
        return None
    return address if good and "\\" not in address else None


def _is_seen(character: str) -> bool:
    return unicodedata.category(character) not in _UNSEEN or character in _JOINERS
