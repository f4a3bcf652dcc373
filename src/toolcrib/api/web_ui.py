"""The web UI: serves the files that `make web` builds. All its paths get the same page."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from mimetypes import guess_type
from pathlib import Path
from typing import Final

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from toolcrib.api.request_log import ROUTE_KEY

BUILT: Final = Path(__file__).parent / "web"
# The paths that the UI's router knows, in web/src/app/App.tsx. All others are 404, for programs and scanners alike.
_PAGES: Final = frozenset({"/", "/inbox"})
_WORKSPACES: Final = "/w/"
_ROUTE: Final = "web_ui"
_NONCE: Final = b"{{nonce}}"
_FOREVER: Final = "public, max-age=31536000, immutable"
# Inline styles need the nonce; nothing is loaded from elsewhere, and nothing is evaluated.
_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self' 'nonce-{nonce}'",
        "img-src 'self' data:",
        "font-src 'self'",
        "connect-src 'self'",
        "manifest-src 'self'",
        "form-action 'none'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
_NOT_BUILT: Final = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Toolcrib</title>
<h1>Toolcrib is running, but its web UI is not built</h1>
<p>In a checkout, build it with <code>make web</code>, then restart the server. Installed packages include it.</p>
<p>The API is described at <a href="/api/v1/openapi.json">/api/v1/openapi.json</a>.</p></html>
"""


@dataclass(frozen=True, slots=True)
class _StaticFile:
    content: bytes
    compressed: bytes | None
    headers: Mapping[str, str]


class WebUi:
    """The application for paths that no route matched. What is not a page goes on to ``otherwise``."""

    def __init__(self, otherwise: ASGIApp, *, folder: Path = BUILT) -> None:
        self._otherwise = otherwise
        self._folder = folder

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD"):
            await self._otherwise(scope, receive, send)
        elif (file := self._files.get(path)) is not None:
            scope[ROUTE_KEY] = _ROUTE
            await _of(file, takes_gzip=_takes_gzip(scope))(scope, receive, send)
        elif path in _PAGES or path.startswith(_WORKSPACES):
            scope[ROUTE_KEY] = _ROUTE
            await self._page()(scope, receive, send)
        else:
            await self._otherwise(scope, receive, send)

    def _page(self) -> Response:
        nonce = secrets.token_urlsafe(16)
        headers = {
            "Cache-Control": "no-cache",
            "Content-Security-Policy": _POLICY.format(nonce=nonce),
            "Cross-Origin-Opener-Policy": "same-origin",
            "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
            "Referrer-Policy": "same-origin",
        }
        if self._index is None:
            return Response(_NOT_BUILT, 503, headers, "text/html")
        return Response(self._index.replace(_NONCE, nonce.encode()), 200, headers, "text/html")

    @cached_property
    def _index(self) -> bytes | None:
        index = self._folder / "index.html"
        return index.read_bytes() if index.is_file() else None

    @cached_property
    def _files(self) -> Mapping[str, _StaticFile]:
        """The files by path, read once: they are few, and only built files can be requested."""
        found = [path for path in self._folder.rglob("*") if path.is_file() and not path.name.startswith(".")]
        return {
            f"/{path.relative_to(self._folder).as_posix()}": _file(path)
            for path in found
            if path.suffix != ".gz" and path.name != "index.html" and ".vite" not in path.parts
        }


def _file(path: Path) -> _StaticFile:
    compressed = path.with_name(f"{path.name}.gz")
    # The build names the files in `assets` by their content.
    lasts = _FOREVER if path.parent.name == "assets" else "no-cache"
    kind = guess_type(path.name)[0] or "application/octet-stream"
    return _StaticFile(
        path.read_bytes(),
        compressed.read_bytes() if compressed.is_file() else None,
        {"Cache-Control": lasts, "Content-Type": kind, "Vary": "Accept-Encoding"},
    )


def _of(file: _StaticFile, *, takes_gzip: bool) -> Response:
    if takes_gzip and file.compressed is not None:
        return Response(file.compressed, headers={**file.headers, "Content-Encoding": "gzip"})
    return Response(file.content, headers=dict(file.headers))


def _takes_gzip(scope: Scope) -> bool:
    return any(name == b"accept-encoding" and b"gzip" in value for name, value in scope["headers"])
