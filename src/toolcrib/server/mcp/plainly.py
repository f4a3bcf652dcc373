"""Answers of the older era as a plain JSON body instead of a stream of events, where nothing is said meanwhile.

Its library streams every answer or none. A stream is for what takes long, tells its progress or asks a person; for
reading a file it costs the server and the client a third of the call.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from mcp.server.auth.middleware.bearer_auth import AuthorizationContext
from mcp.server.streamable_http import StreamableHTTPServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from pydantic_core import from_json
from starlette.types import Message, Receive

from toolcrib.domain.agents import Trust
from toolcrib.domain.effects import Category, Danger
from toolcrib.server.auth import Principal
from toolcrib.tools.registry import Registry

# A longer request is no plain one, and not looked into.
MOST_BYTES: Final = 64_000
_PLAINLY: ContextVar[bool] = ContextVar("plainly", default=False)


class Sessions(StreamableHTTPSessionManager):
    """The library's sessions, of which each answer can be plain."""

    def _admit_session(self, requestor: AuthorizationContext | None) -> StreamableHTTPServerTransport | None:
        admitted = super()._admit_session(requestor)
        if admitted is not None:
            # The library makes them itself, and cannot be told of which class.
            admitted.__class__ = _Transport
        return admitted


class _Transport(StreamableHTTPServerTransport):
    @property
    def is_json_response_enabled(self) -> bool:  # type: ignore[override]
        """Asked within the request; the session itself, which hands messages on, is in none."""
        return _PLAINLY.get()


@contextmanager
def plainly(answered: bool) -> Iterator[None]:  # noqa: FBT001 - reads as a sentence
    token = _PLAINLY.set(answered)
    try:
        yield
    finally:
        _PLAINLY.reset(token)


def is_plain(body: bytes, principal: Principal, registry: Registry) -> bool:
    """Whether a request only looks at files, wants no progress, and needs nobody's yes."""
    if len(body) > MOST_BYTES or (principal.agent and principal.agent.rules.trust is Trust.SUPERVISED):
        return False
    try:
        given: Any = from_json(body)
    except ValueError:
        return False
    match given:
        case {"method": "tools/call", "params": {"name": str(name), **more}}:
            tool, meta = registry.get(name), more.get("_meta")
            wants_progress = isinstance(meta, dict) and "progressToken" in meta
            looks = tool is not None and tool.looks and tool.category is Category.FILE and tool.danger is Danger.SAFE
            return looks and not wants_progress
        case _:
            return False


def again(body: bytes, receive: Receive) -> Receive:
    """A ``receive`` that begins with a body that was read already."""
    is_read = False

    async def receive_again() -> Message:
        nonlocal is_read
        if is_read:
            return await receive()
        is_read = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_again
