"""Sanitizes text and URLs of search results and web pages, which are untrusted and read by models and terminals.

Also finds secrets in queries and URLs.
"""

import html
import re
import unicodedata
from typing import Any
from urllib.parse import urlsplit

_MOST_ADDRESS = 2_000
# Engines mark matches, and some return whole fragments. Other angle brackets are the author's: List<String>.
_TAG = re.compile(
    r"</?(?:a|abbr|b|big|blockquote|br|cite|code|dd|div|dl|dt|em|font|h[1-6]|hr|i|img|li|mark|ol|p|pre|q|s|script|"
    r"small|span|strong|style|sub|sup|table|tbody|td|th|thead|time|tr|tt|u|ul|var|wbr)(?:\s[^<>]*)?/?>",
    re.IGNORECASE,
)
# Colours, titles and the like: ESC [ … m, ESC ] … BEL, and their one-character forms.
_TERMINAL = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?|\x1b."
)
_LINE_END = re.compile(r"\r\n?|[\x0b\x0c\x85\u2028\u2029]")
_BLANK_LINES = re.compile(r"\n(?:[ \t]*\n){2,}")
# Format characters that scripts need: the joiners of Persian, of Indian scripts and of emoji.
_JOINERS = "\u200c\u200d"
_UNSEEN = {"Cc", "Cf", "Cs", "Co", "Cn"}


def to_plain_text(value: Any, *, most: int) -> str:
    """Return a text as one line without markup, terminal escapes or invisible characters; empty if it is not a text."""
    if not isinstance(value, str):
        return ""
    # Cut first, because the rest costs time per character; generously, because markup is removed.
    text = to_single_line(html.unescape(_TAG.sub(" ", value[: 8 * most])))
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def to_single_line(text: str) -> str:
    """Return a text as one line without terminal escapes or invisible characters. Markup stays."""
    text = _TERMINAL.sub(" ", text)
    text = "".join(character if _is_seen(character) else " " if character.isspace() else "" for character in text)
    return " ".join(text.split())


def to_plain_lines(text: str) -> str:
    """Return a text without terminal escapes or invisible characters. Lines and indentation stay, markup too."""
    text = _TERMINAL.sub("", _LINE_END.sub("\n", text))
    seen = (character if character in "\n\t" or _is_seen(character) else "" for character in text)
    return _BLANK_LINES.sub("\n\n", "".join(seen)).strip("\n")


def web_address(value: Any) -> str | None:
    """Return the URL if it is HTTP and shows its real host; None for ``javascript:`` or ``bank.org@evil``."""
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


_SHAPES = {
    "a private key": r"-----BEGIN [A-Z ]*PRIVATE KEY",
    "an AWS key": r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",
    "a GitHub token": r"\b(?:gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{30,})",
    "a GitLab token": r"\bglpat-[A-Za-z0-9_-]{20,}",
    "a Slack token": r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}",
    "a Google key": r"\bAIza[0-9A-Za-z_-]{35}\b",
    "a model provider's key": r"\bsk-[A-Za-z0-9_-]{20,}",
    "a Stripe key": r"\b[rs]k_(?:live|test)_[A-Za-z0-9]{16,}",
    "a signed token": r"\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}",
    "a password in an address": r"\b[a-z][a-z0-9+.-]{1,20}://[^\s/:@]{1,100}:[^\s/@]{1,200}@",
}
_PATTERN = re.compile("|".join(f"({shape})" for shape in _SHAPES.values()))


def find_secret(text: str) -> str | None:
    """Return which kind of secret ``text`` contains, if any.

    It knows the formats of issuers' keys and guesses nothing.
    """
    found = _PATTERN.search(text)
    return None if found is None or found.lastindex is None else list(_SHAPES)[found.lastindex - 1]
