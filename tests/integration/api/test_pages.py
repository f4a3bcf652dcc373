"""The web UI's files over HTTP: which URLs serve them, with which policy, and how long they are cached."""

import gzip
import json
from pathlib import Path

import httpx2
import pytest
from fastapi import FastAPI

from tests.integration.api.accounts import code_of
from toolcrib.api.web_ui import BUILT, WebUi

FIRST_LOAD = 250_000


@pytest.fixture
def built(tmp_path: Path) -> Path:
    """A build of two files."""
    assets = tmp_path / "assets"
    assets.mkdir()
    (assets / "index-a1.js").write_text("let x = 1")
    (assets / "index-a1.js.gz").write_bytes(gzip.compress(b"let x = 1"))
    (tmp_path / "index.html").write_text('<meta name="csp-nonce" content="{{nonce}}">')
    return tmp_path


def client_of(app: FastAPI, folder: Path) -> httpx2.AsyncClient:
    app.router.default = WebUi(app.router.not_found, folder=folder)
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://localhost")


async def test_every_ui_url_serves_the_page(app: FastAPI, built: Path) -> None:
    async with client_of(app, built) as client:
        pages = [await client.get(path) for path in ("/", "/w/1", "/w/1/files/src/main.py")]

    assert [page.status_code for page in pages] == [200, 200, 200]
    assert {page.headers["cache-control"] for page in pages} == {"no-cache"}


async def test_api_urls_serve_no_page(app: FastAPI, built: Path) -> None:
    async with client_of(app, built) as client:
        unknown = [await client.get(path) for path in ("/api/v1/nowhere", "/api", "/mcp/x/y", "/assets/older.js")]
        posted = await client.post("/w/1")

    assert {code_of(answer) for answer in [*unknown, posted]} == {(404, "NOT_FOUND")}


async def test_page_policy_allows_only_our_own_sources(app: FastAPI, built: Path) -> None:
    async with client_of(app, built) as client:
        first, second = await client.get("/"), await client.get("/")

    policy = dict(part.split(" ", 1) for part in first.headers["content-security-policy"].split("; "))
    nonce = policy["style-src"].removeprefix("'self' 'nonce-").removesuffix("'")
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == "'none'"
    assert "unsafe" not in first.headers["content-security-policy"]
    assert f'content="{nonce}"' in first.text
    assert first.text != second.text
    assert first.headers["x-content-type-options"] == "nosniff"


async def test_hashed_files_are_cached_forever_and_sent_compressed(app: FastAPI, built: Path) -> None:
    async with client_of(app, built) as client:
        packed = await client.get("/assets/index-a1.js")
        plain = await client.get("/assets/index-a1.js", headers={"Accept-Encoding": "identity"})

    assert (packed.headers["content-encoding"], packed.text) == ("gzip", "let x = 1")
    assert ("content-encoding" in plain.headers, plain.text) == (False, "let x = 1")
    assert "immutable" in packed.headers["cache-control"]
    assert packed.headers["vary"] == "Accept-Encoding"


async def test_without_a_build_the_page_explains_how_to_make_one(app: FastAPI, tmp_path: Path) -> None:
    async with client_of(app, tmp_path) as client:
        page = await client.get("/")

    assert page.status_code == 503
    assert "make web" in page.text


def test_first_load_is_at_most_250_kb_compressed() -> None:
    """Counts the page, what it loads by itself, and the first screen."""
    manifest = json.loads((BUILT / ".vite" / "manifest.json").read_text())
    needed: set[str] = set()

    def take(name: str) -> None:
        part = manifest[name]
        if part["file"] in needed:
            return
        needed.update([part["file"], *part.get("css", [])])
        for imported in part.get("imports", []):
            take(imported)

    for name in ("index.html", "src/screens/chat/ChatScreen.tsx", "src/components/MarkdownRendered.tsx"):
        take(name)
    sizes = {name: (BUILT / f"{name}.gz").stat().st_size for name in needed}
    assert sum(sizes.values()) <= FIRST_LOAD, sizes


def test_build_requests_nothing_from_other_sites() -> None:
    index = (BUILT / "index.html").read_text()
    styles = "".join(path.read_text() for path in (BUILT / "assets").glob("*.css"))
    assert "://" not in index
    assert "url(http" not in styles
    assert "@import" not in styles
