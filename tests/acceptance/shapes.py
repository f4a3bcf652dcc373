"""Matchers for values that a test cannot predict (ids, times, hashes), and for errors."""

import hashlib
import re
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx2


class Like:
    """Equal to every text of its form, so that tests can compare complete responses with ``==``."""

    def __init__(self, what: str, pattern: str) -> None:
        self._what = what
        self._pattern = re.compile(pattern)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and self._pattern.fullmatch(other) is not None

    def __hash__(self) -> int:
        return hash(self._what)

    def __repr__(self) -> str:
        return f"<{self._what}>"


A_UUID = Like("a UUIDv7", r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
A_TIME = Like("ISO 8601 with Z", r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d{1,6})?Z")


class Says:
    """Equal to every text that contains these words."""

    def __init__(self, *words: str) -> None:
        self._words = words

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and all(word in other for word in self._words)

    def __hash__(self) -> int:
        return hash(self._words)

    def __repr__(self) -> str:
        return f"<a text with {', '.join(map(repr, self._words))}>"


def sha256_of(content: str | bytes | Path) -> str:
    """The hash of a text, of bytes, or of a file on disk."""
    if isinstance(content, Path):
        content = content.read_bytes()
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()


def moment(text: str) -> datetime:
    """Parses a timestamp, to compare it with another."""
    assert text == A_TIME
    return datetime.fromisoformat(text)


def lines(count: int, *, start: int = 0) -> str:
    """Numbered lines, starting with number ``start``."""
    return "".join(f"line {number}\n" for number in range(start, start + count))


def result_of(response: httpx2.Response) -> Any:
    """Checks the envelope of a successful call and returns its result."""
    body = response.json()
    assert response.status_code == 200, body
    assert body == {"success": True, "result": body["result"], "error": None}, body
    return body["result"]


def refused(
    response: httpx2.Response,
    status: int,
    code: str,
    error: object = None,
    *,
    fields: Mapping[str, object] | None = None,
) -> None:
    """Asserts that a call failed with this error in the common envelope; ``fields`` are the only fields it names."""
    body = response.json()
    expected: dict[str, object] = {"success": False, "error": body.get("error") if error is None else error}
    expected["code"] = code
    if fields is not None:
        expected["fields"] = dict(fields)
    assert (response.status_code, body) == (status, expected), f"{response.status_code} {body} is not {expected}"
    assert body["error"]
