"""Encodes values as JSON that PostgreSQL's jsonb accepts."""

import re
from collections.abc import Mapping
from typing import Any

from pydantic_core import PydanticSerializationError, to_json

# An escaped NUL, but not the text `\\u0000` after an escaped backslash.
_NUL = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")
_DEEPEST = 200


def json_text(value: Any) -> str:
    """Encode a value. jsonb cannot store NUL characters or lone surrogates, so they become U+FFFD."""
    try:
        text = _encoded(value)
    except (PydanticSerializationError, UnicodeEncodeError):
        text = _encoded(_encodable(value))
    return _NUL.sub(r"\1\\ufffd", text) if "\\u0000" in text else text


def _encoded(value: Any) -> str:
    return to_json(value, fallback=str, inf_nan_mode="null").decode()


def _encodable(value: Any, level: int = 0) -> Any:
    """Replace lone surrogates, which UTF-8 cannot encode, and what is nested too deeply."""
    if isinstance(value, str):
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if not isinstance(value, Mapping | list | tuple):
        return value
    if level == _DEEPEST:
        return f"[… nested more than {_DEEPEST} levels deep …]"
    if isinstance(value, Mapping):
        return {_encodable(str(key)): _encodable(inner, level + 1) for key, inner in value.items()}
    return [_encodable(inner, level + 1) for inner in value]
