"""A workspace for MCP clients that start programs, on standard input and output. Passes messages on, no more."""

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from toolcrib.cli.place import open_place
from toolcrib.domain.errors import Misconfigured

if TYPE_CHECKING:
    from mcp.shared.message import SessionMessage


def serve(directory: Path, *, server: str | None, workspace: str | None) -> None:
    """Serves until the client closes our input."""
    with _address(directory, server, workspace) as (url, token):
        asyncio.run(_pass_on(url, token))


@contextmanager
def _address(directory: Path, server: str | None, workspace: str | None) -> Iterator[tuple[str, Callable[[], str]]]:
    if server is None:
        from toolcrib.local import open_local

        with open_local(directory, tell=lambda text: typer.echo(text, err=True)) as local:
            yield f"{local.address}/mcp/{local.workspace_id}", local.token
        return
    token = os.environ.get("TOOLCRIB_TOKEN")
    if not token:
        raise Misconfigured("Say who you are to the server: set TOOLCRIB_TOKEN to an API key of yours or an agent's.")
    if workspace is None:
        yield f"{server.rstrip('/')}/mcp", lambda: token
        return
    with open_place(server=server, workspace=workspace) as place:
        yield f"{server.rstrip('/')}/mcp/{place.id}", lambda: token


async def _pass_on(url: str, token: Callable[[], str]) -> None:
    """Messages both ways, until the client closes our input."""
    import anyio
    import httpx2
    from mcp.client.streamable_http import streamable_http_client
    from mcp.server.stdio import stdio_server

    timeout = httpx2.Timeout(30, read=600)
    era = _Era()

    async def say_who(request: httpx2.Request) -> None:
        # Each time anew: a directory's token is renewed while this runs.
        request.headers["Authorization"] = f"Bearer {token()}"

    async with (
        httpx2.AsyncClient(timeout=timeout, trust_env=False, event_hooks={"request": [say_who]}) as http,
        stdio_server() as (from_client, to_client),
        streamable_http_client(url, http_client=http) as (from_server, to_server),
        anyio.create_task_group() as group,
    ):

        async def back() -> None:
            async for answer in from_server:
                if not isinstance(answer, Exception):
                    era.hear(answer)
                    await to_client.send(answer)

        group.start_soon(back)
        async for message in from_client:
            if not isinstance(message, Exception):
                await to_server.send(era.marked(message))
        group.cancel_scope.cancel()


class _Era:
    """Which protocol is spoken. Over HTTP, headers say so, and what a request is about."""

    def __init__(self) -> None:
        self._agreed: str | None = None

    def hear(self, answer: "SessionMessage") -> None:
        """The answer to `initialize` says what was agreed on."""
        result = getattr(answer.message, "result", None)
        if self._agreed is None and isinstance(result, dict) and isinstance(result.get("protocolVersion"), str):
            self._agreed = result["protocolVersion"]

    def marked(self, message: "SessionMessage") -> "SessionMessage":
        from mcp.shared.message import ClientMessageMetadata, SessionMessage

        headers = self._headers(getattr(message.message, "method", None), getattr(message.message, "params", None))
        return SessionMessage(message.message, ClientMessageMetadata(headers=headers)) if headers else message

    def _headers(self, method: str | None, params: Any) -> dict[str, str]:
        from mcp.shared.inbound import (
            MCP_METHOD_HEADER,
            MCP_NAME_HEADER,
            MCP_PROTOCOL_VERSION_HEADER,
            encode_header_value,
        )
        from mcp_types import PROTOCOL_VERSION_META_KEY

        given = params if isinstance(params, dict) else {}
        version = (given.get("_meta") or {}).get(PROTOCOL_VERSION_META_KEY)
        if method is None or method == "initialize":
            return {}
        if not isinstance(version, str):
            return {MCP_PROTOCOL_VERSION_HEADER: self._agreed} if self._agreed else {}
        headers = {MCP_PROTOCOL_VERSION_HEADER: version, MCP_METHOD_HEADER: method}
        if isinstance(name := given.get("name"), str):
            headers[MCP_NAME_HEADER] = encode_header_value(name)
        return headers
