"""A call's arguments, spelled so that equal ones are equal texts. What a person approves is bound to this spelling."""

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from toolcrib.domain.errors import BadArguments


def spelled(arguments: Mapping[str, Any]) -> str:
    """ASCII JSON with sorted keys: it holds every string there is, and reads back alike."""
    try:
        return json.dumps(arguments, sort_keys=True, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    except (ValueError, RecursionError, TypeError):
        raise BadArguments({"args": "These cannot be written as JSON."}) from None


def unspelled(text: str) -> dict[str, Any]:
    arguments = json.loads(text)
    assert isinstance(arguments, dict)
    return arguments


UNWRITABLE = "Holds a NUL character or half of a surrogate pair, which are no text."


def is_writable(text: str) -> bool:
    """Whether PostgreSQL can hold the text as it is."""
    return "\x00" not in text and not any("\ud800" <= character <= "\udfff" for character in text)


def digest_of(text: str) -> bytes:
    return sha256(text.encode("ascii")).digest()
