"""Masks a server's secrets in what it sends, so that no result, error or log repeats one by accident.

A server that wants to reveal its secret can encode it. What limits that: a program reaches granted hosts only.
"""

import json
from collections.abc import Collection, Mapping
from typing import Final

# Shorter values occur in other text as well.
SHORTEST: Final = 8
# Some encoders escape these in JSON, though they need not.
_OFTEN_ESCAPED: Final = str.maketrans({character: f"\\u{ord(character):04x}" for character in "<>&'+"})


class SecretMask:
    """Replaces the values of secrets by their names."""

    def __init__(self, secrets: Mapping[str, str], *, are_headers: bool = False) -> None:
        """Create it. Of headers, what follows the scheme (``Bearer …``) is masked also by itself."""
        found = [*secrets.items()]
        if are_headers:
            found += [(name, value.partition(" ")[2].strip()) for name, value in secrets.items()]
        # The longest first: one may contain another.
        long = sorted(found, key=lambda secret: len(secret[1]), reverse=True)
        self._words = [(value, _shown(name, value)) for name, value in long if len(value) >= SHORTEST]
        self._forms = [(form.encode(), shown.encode()) for value, shown in self._words for form in _json_forms(value)]

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to mask."""
        return not self._words

    def text(self, text: str) -> str:
        """Mask a text."""
        for value, shown in self._words:
            text = text.replace(value, shown)
        return text

    def json_line(self, line: bytes) -> bytes:
        """Mask the strings of a JSON document, as encoders commonly write them."""
        for form, shown in self._forms:
            line = line.replace(form, shown)
        return line


def _shown(name: str, value: str) -> str:
    # Digits may be a number in a document, which must stay one.
    return "9" * len(value) if value.isdigit() else f"[secret {name}]"


def _json_forms(value: str) -> Collection[str]:
    """Return how a text may be written in a JSON string."""
    plain = json.dumps(value)[1:-1]
    return dict.fromkeys((plain, plain.replace("/", "\\/"), plain.translate(_OFTEN_ESCAPED)))
