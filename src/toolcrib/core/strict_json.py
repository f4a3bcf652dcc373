"""Strict JSON parsing with limits. Large texts are parsed in a worker."""

import json
from typing import Any, Final

from toolcrib.core.errors import BadArguments, TooLarge

MAX_DEPTH: Final = 100
# Numbers, texts, lists and objects in one body. Everything done with them runs on the event loop.
MAX_VALUES: Final = 20_000
# The most values that fit in here are parsed in a few milliseconds.
SMALL_BYTES: Final = 65_536


def strict_json(body: bytes) -> Any:
    """Parse a JSON value. Rejects NaN, repeated names, lone surrogates, too many levels and too many values."""
    try:
        # Decoded here, because the standard library also accepts UTF-16 and lone surrogates.
        text = body.decode()
        value = json.loads(text, object_pairs_hook=_without_repeats, parse_constant=_no_number)
        if "\\ud" in text or "\\uD" in text:
            # Fails on an escaped lone surrogate, which no database or disk accepts.
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:
        raise BadArguments({"body": f"Not valid JSON: {error}"}) from None
    # Counting brackets is fast, and nearly always shows that there is no need to look further.
    if len(body) > SMALL_BYTES or body.count(b"[") + body.count(b"{") > MAX_DEPTH:
        _reject_endless(value)
    return value


def check_json(body: bytes) -> None:
    """Check a body that another parser reads."""
    strict_json(body)


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise ValueError("a name appears twice in one object")
    return value


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is not a number in JSON")


def _reject_endless(value: Any) -> None:
    level, count = [value], 1
    for _ in range(MAX_DEPTH + 1):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        count += len(level)
        if count > MAX_VALUES:
            raise TooLarge(f"The body has more than {MAX_VALUES:,} values, the limit.")
        if not level:
            return
    raise _too_deep()


def _too_deep() -> BadArguments:
    return BadArguments({"body": f"Nested deeper than {MAX_DEPTH} levels"})
