"""Private values that can be recognized anywhere: planted where users put secrets and contents, then searched for."""

import base64
import re
import secrets
from collections.abc import Iterator

_PREFIX = "tcanaryt"
_SHOWN = 400
# Long enough to be unique, short enough to be found in a text that was cut.
_PIECE = 16


class Canaries:
    """What was planted, and where.

    A canary has letters and digits only: JSON, URLs, quoting and ``repr`` leave them as they are, so that it is found
    within every such form. All begin alike, so that base64, hexadecimal and cut forms are found too.
    """

    def __init__(self) -> None:
        self._planted: dict[str, str] = {}
        self._secrets: dict[str, str] = {}

    def plant(self, where: str) -> str:
        """Return a new canary for this place."""
        value = f"{_PREFIX}{secrets.token_hex(6)}"
        self._planted[value] = where
        return value

    def keep_secret(self, what: str, value: str) -> str:
        """Search also for a secret that the server or a fixture has created."""
        # The claims and the signature of an access token; its header is the same for all.
        for part in value.split(".")[1:] if value.startswith("ey") else [value]:
            self._secrets[part[-_PIECE:]] = what
        return value

    def found_in(self, data: bytes) -> list[str]:
        """Return what was found, each with where it had been planted and the text around it."""
        return [*self._canaries_in(data), *self._secrets_in(data)]

    def _canaries_in(self, data: bytes) -> Iterator[str]:
        for hit in _ANY_CANARY.finditer(data):
            value = data[hit.start() : hit.start() + len(_PREFIX) + 12].decode("latin-1").lower()
            yield f"{self._planted.get(value, 'in another form or cut')}: {_around(data, hit)}"

    def _secrets_in(self, data: bytes) -> Iterator[str]:
        for piece, what in self._secrets.items():
            if hit := re.search(b"|".join(re.escape(form) for form in _forms(piece.encode())), data):
                yield f"{what}: {_around(data, hit)}"


def _forms(value: bytes) -> Iterator[bytes]:
    """The forms in which a text may be written: as it is, hexadecimal, and base64 at each of its three alignments."""
    yield value
    yield value.hex().encode()
    for skipped in range(3):
        encoded = base64.b64encode(b"\0" * skipped + value)
        # Without the characters that also depend on the bytes before and after.
        whole = encoded[(0, 2, 3)[skipped] : len(encoded) - (0, 3, 2)[(skipped + len(value)) % 3]]
        yield whole
        yield whole.translate(bytes.maketrans(b"+/", b"-_"))


def _around(data: bytes, hit: re.Match[bytes]) -> str:
    return data[max(0, hit.start() - _SHOWN) : hit.end() + _SHOWN].decode(errors="replace")


_ANY_CANARY = re.compile(b"|".join(re.escape(form) for form in _forms(_PREFIX.encode())), re.IGNORECASE)
