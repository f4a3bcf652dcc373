"""Which paths a ``path_pattern`` means: SQL LIKE with ``*`` for ``%``, or a part of the path. Case does not count."""

import re
from dataclasses import dataclass

_PIECE = re.compile(r"\\(.)|([%*])|(_)|(.)", re.DOTALL)
# The end of a name that ripgrep can be given as it stands.
_ENDING = re.compile(r".*[%*]([A-Za-z0-9.\-]+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Likeness:
    """A path pattern, read. ``ending`` is how the name of every file it means ends, where that is certain."""

    expression: re.Pattern[str]
    ending: str = ""

    def means(self, path: str) -> bool:
        return self.expression.fullmatch(path) is not None


def likeness(pattern: str) -> Likeness:
    """``%.rs``, ``src/*``, ``/src/%``; without a wildcard, any path that contains it."""
    text = pattern.strip().removeprefix("./")
    if "%" not in text and "*" not in text:
        return Likeness(_compiled(["", _literal(text), ""]))
    if not text.startswith(("/", "%", "*")):
        # It may begin at any folder.
        text = f"%/{text}"
    ending = _ENDING.fullmatch(text)
    return Likeness(_compiled(_pieces(text)), ending[1] if ending else "")


def _pieces(text: str) -> list[str]:
    """What stands between the wildcards, as expressions."""
    pieces = [""]
    for escaped, many, one, plain in _PIECE.findall(text):
        if many:
            pieces.append("")
        else:
            pieces[-1] += "." if one else _literal(escaped or plain)
    return pieces


def _compiled(pieces: list[str]) -> re.Pattern[str]:
    """Each piece at its first place after the one before: no pattern makes this go back, however it is written."""
    first, *middle = pieces
    last = middle.pop() if middle else None
    expression = first + "".join(f"(?>.*?{piece})" for piece in middle if piece)
    return re.compile(expression + ("" if last is None else f".*{last}"), re.IGNORECASE | re.DOTALL)


def _literal(text: str) -> str:
    return re.escape(text)
