"""Request bodies: how large they may be, and what counts as JSON. Knows no model."""

import json
from collections.abc import Callable, Coroutine
from typing import Any, Final

from fastapi import Request, Response
from fastapi.routing import APIRoute
from pydantic_core import from_json
from starlette.types import Message, Receive

from toolcrib.domain.errors import BadArguments, TooLarge

MAX_DEPTH: Final = 100


def strict_json(body: bytes) -> Any:
    """A JSON value. Refused are NaN, repeated names, halves of characters and nesting beyond ``MAX_DEPTH``."""
    try:
        # Decoded here, for the standard library would also take UTF-16 and lone surrogates.
        text = body.decode()
        value = json.loads(text, object_pairs_hook=_without_repeats, parse_constant=_no_number)
        if "\\ud" in text or "\\uD" in text:
            from_json(body)  # Knows a lone surrogate, which no database or disk would take, behind its escape.
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:
        raise BadArguments({"body": f"Not valid JSON: {error}"}) from None
    # Counting brackets is quick, and tells nearly always that there is nothing to look for.
    if body.count(b"[") + body.count(b"{") > MAX_DEPTH and _is_deeper_than(MAX_DEPTH, value):
        raise _too_deep()
    return value


class StrictRoute(APIRoute):
    """A route that reads its body with ``strict_json``."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_strictly(request: Request) -> Response:
            return await handle(_StrictRequest(request.scope, request.receive))

        return handle_strictly


def limited(receive: Receive, max_bytes: int) -> Receive:
    """A ``receive`` that stops a body at ``max_bytes``, whatever its headers promised."""
    total = 0

    async def receive_within() -> Message:
        nonlocal total
        message = await receive()
        total += len(message.get("body", b""))
        if total > max_bytes:
            raise too_large(max_bytes)
        return message

    return receive_within


def too_large(max_bytes: int) -> TooLarge:
    return TooLarge(f"The request's body has more than {max_bytes:,} bytes, which is all that is taken at once.")


class _StrictRequest(Request):
    async def json(self) -> Any:
        return strict_json(await self.body())


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise ValueError("a name appears twice in one object")
    return value


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is not a number in JSON")


def _is_deeper_than(depth: int, value: Any) -> bool:
    level = [value]
    for _ in range(depth + 1):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return False
    return True


def _too_deep() -> BadArguments:
    return BadArguments({"body": f"Nested deeper than {MAX_DEPTH} levels"})
