"""What tests send to servers and no operator may see: passwords, keys, tokens and contents.

Every HTTP client of a test process notes what it sends. Each server's log is searched for it when the server ends, and
what servers within the test process log, after each test.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx2

# What is searched for: so many characters. A text that was cut has them, too, and chance does not make them.
_PIECE = 20
_SECRETS = {"password", "current_password", "new_password", "secret", "key", "api_key", "access_token", "refresh_token"}
# Characters that JSON, `repr` and quoting leave as they are.
_PLAIN = re.compile(rf"[ !#-&(-\[\]-~]{{{_PIECE},}}")
# An id is no secret, even where an attack sends it for a token.
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
_MOST_LINES = 8
_noted: dict[bytes, str] = {}


def note_requests() -> None:
    """From now on, note what the clients of this process send."""
    send, async_send = httpx2.Client.send, httpx2.AsyncClient.send

    def noting(self: httpx2.Client, request: httpx2.Request, **options: Any) -> httpx2.Response:
        _note(request)
        return send(self, request, **options)

    async def noting_async(self: httpx2.AsyncClient, request: httpx2.Request, **options: Any) -> httpx2.Response:
        _note(request)
        return await async_send(self, request, **options)

    httpx2.Client.send = noting  # type: ignore[method-assign]
    httpx2.AsyncClient.send = noting_async  # type: ignore[method-assign]


def check_log(log: bytes, whose: str) -> None:
    """Fail if a log has something that was noted."""
    found = next(_found_in(log), None)
    assert found is None, f"{whose} has {found}"


def _found_in(log: bytes) -> Iterator[str]:
    for line in set(log.splitlines()):
        for start in range(len(line) - _PIECE + 1):
            if what := _noted.get(line[start : start + _PIECE]):
                yield f"{what}: {line[max(0, start - 300) : start + 300]!r}"


def _note(request: httpx2.Request) -> None:
    for header in ("authorization", "x-api-key"):
        if len(value := request.headers.get(header, "")) > 2 * _PIECE and not _ID.search(value):
            _noted[value[-_PIECE:].encode()] = f"the {header} header of a request"
    if "json" not in request.headers.get("content-type", ""):
        return
    try:
        body = json.loads(request.content)
    except (httpx2.RequestNotRead, ValueError, RecursionError):
        return
    for name, text in _texts(body):
        for piece in _pieces(name, text):
            _noted[piece.encode()] = f"{name!r} of {request.method} {request.url.path}"


def _texts(value: Any, name: str = "", depth: int = 0) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield name, value
    elif isinstance(value, dict) and depth < 8:
        for key, one in value.items():
            yield from _texts(one, key, depth + 1)
    elif isinstance(value, list) and depth < 8:
        for one in value[:20]:
            yield from _texts(one, name, depth + 1)


def _pieces(name: str, text: str) -> Iterator[str]:
    if name in _SECRETS and len(text) >= _PIECE:
        yield text[-_PIECE:]
    for line in text.split("\n", _MOST_LINES)[:_MOST_LINES]:
        # A name or a path is in every access log. Texts have spaces.
        if (found := _PLAIN.search(line)) and " " in found[0].strip() and len(set(found[0])) > 5:
            yield found[0][:_PIECE]
