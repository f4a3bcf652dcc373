"""Request bodies as bytes. Whatever a model or a tool once wrote, the body can be sent."""

import json
import math
from collections.abc import Mapping
from typing import Any

from toolcrib.providers.reading import text_of

# Deeper than any tool's arguments, and far from where encoders give up.
_DEEPEST = 200


def encoded(body: Mapping[str, Any]) -> bytes:
    """The body as JSON. What JSON or UTF-8 cannot say, or encoders cannot bear, is replaced."""
    try:
        return _dumped(body)
    except (ValueError, RecursionError):
        return _dumped(_speakable(body, _DEEPEST))


def _dumped(body: object) -> bytes:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def _speakable(value: Any, depth: int) -> Any:
    """The same without halves of surrogate pairs, numbers that are none, and endless nesting."""
    if depth == 0:
        return "…"
    match value:
        case str():
            return text_of(value)
        case float():
            return value if math.isfinite(value) else str(value)
        case Mapping():
            return {text_of(key): _speakable(item, depth - 1) for key, item in value.items()}
        case list() | tuple():
            return [_speakable(item, depth - 1) for item in value]
    return value
