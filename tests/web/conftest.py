"""The web UI in Debian's Chromium with a real server. A page error fails the test."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Page, ViewportSize, async_playwright, expect

from tests.acceptance.conftest import ada, grace, http, new_workspace, workspace
from tests.acceptance.serving import Serving, serving
from tests.acceptance.workspace import Someone, Workspace
from tests.conftest import ROOT
from tests.databases import migrated_database, urls_of
from tests.fakes.model_server import ModelServer, model_server_beside
from tests.wait_until import PATIENCE

__all__ = ["ada", "grace", "http", "new_workspace", "workspace"]

CHROMIUM = "/usr/bin/chromium"
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
WIDE: ViewportSize = {"width": 1280, "height": 800}
PHONE: ViewportSize = {"width": 390, "height": 844}
AXE = ROOT / "web" / "node_modules" / "axe-core" / "axe.min.js"
SCREENS = ROOT / ".cache" / "screens"
# A theme changes nothing but colours.
ALL_RULES: dict[str, Any] = {}
COLOUR_RULES = {"runOnly": {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}}

# A busy machine is slow. Longer waits mean that the element never appears.
expect.set_options(timeout=PATIENCE * 1_000)

Axe = Callable[[Page], Awaitable[None]]
Screenshot = Callable[[Page, str], Awaitable[None]]


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A server with its own database: the accounts of the acceptance tests are in another one."""
    with (
        migrated_database() as name,
        serving(tmp_path_factory.mktemp("web-server"), urls_of(name)) as started,
    ):
        yield started


@pytest.fixture(scope="session")
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        launched = await playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield launched
        await launched.close()


@pytest.fixture(scope="session")
async def shared_context(browser: Browser, server: Serving) -> AsyncIterator[BrowserContext]:
    """The context of the tests that need one page. Its first page stays open: a new window costs a second."""
    context = await _new_context(browser, server)
    await context.new_page()
    yield context
    await context.close()


@pytest.fixture
async def page(shared_context: BrowserContext, server: Serving) -> AsyncIterator[Page]:
    """A page without a login. Afterwards nothing is left of it but the cache of the scripts."""
    async with _checked(await shared_context.new_page()) as opened:
        yield opened
        first, *others = shared_context.pages
        for one in others:
            await one.close()
        await shared_context.clear_cookies()
        debugger = await shared_context.new_cdp_session(first)
        await debugger.send("Storage.clearDataForOrigin", {"origin": server.origin, "storageTypes": "all"})
        await debugger.detach()


@asynccontextmanager
async def new_page(browser: Browser, server: Serving) -> AsyncIterator[Page]:
    """A page in a context of its own."""
    context = await _new_context(browser, server)
    async with _checked(await context.new_page()) as opened:
        yield opened
        await context.close()


async def _new_context(browser: Browser, server: Serving) -> BrowserContext:
    context = await browser.new_context(base_url=server.origin, viewport=WIDE, reduced_motion="reduce")
    context.set_default_timeout(PATIENCE * 1_000)
    return context


@asynccontextmanager
async def _checked(opened: Page) -> AsyncIterator[Page]:
    """A script error or a violation of the content security policy fails the test."""
    page_errors: list[str] = []
    opened.on("pageerror", lambda error: page_errors.append(f"{error.message}\n{error.stack}"))
    opened.on("console", lambda message: page_errors.extend(_page_errors(message)))
    yield opened
    assert page_errors == []


@pytest.fixture
async def workspace_page(page: Page, workspace: Workspace, ada: Someone, server: Serving) -> Page:
    """Ada's page, at the chat of her new workspace."""
    await log_in(page, ada, server)
    await page.goto(f"/w/{workspace.id}/chat")
    return page


async def log_in(page: Page, someone: Someone, server: Serving) -> None:
    """Log in with a cookie. The login form has its own test."""
    await page.context.add_cookies([{"name": "access_token", "value": someone.token, "url": server.origin}])


@pytest.fixture
def model() -> Iterator[ModelServer]:
    """A strict fake of a model server. ``model.say(...)`` scripts its responses."""
    with model_server_beside() as fake:
        yield fake


@pytest.fixture
def axe() -> Axe:
    """Fails if axe finds a serious violation in the page, in light or dark mode."""

    async def check(page: Page) -> None:
        # Through the debugger, which the content security policy does not restrict.
        if not await page.evaluate("'axe' in window"):
            await page.evaluate(AXE.read_text())
        for theme, rules in (("light", ALL_RULES), ("dark", COLOUR_RULES)):
            await page.evaluate("theme => { document.documentElement.dataset.theme = theme }", theme)
            options = {"resultTypes": ["violations"], **rules}
            found: dict[str, Any] = await page.evaluate("options => axe.run(document, options)", options)
            assert [_describe(one) for one in found["violations"] if one["impact"] in ("serious", "critical")] == [], (
                theme
            )
        await page.evaluate("() => { delete document.documentElement.dataset.theme }")

    return check


@pytest.fixture
def screenshot() -> Screenshot:
    """Saves a screenshot of the page in light and dark mode, in ``make screens``. A test does not depend on it."""

    async def take(page: Page, name: str) -> None:
        if not os.environ.get("TOOLCRIB_SCREENS"):
            return
        SCREENS.mkdir(parents=True, exist_ok=True)
        for theme in ("dark", "light"):
            await page.evaluate("theme => { document.documentElement.dataset.theme = theme }", theme)
            await page.screenshot(path=SCREENS / f"{name}-{theme}.png")
        await page.evaluate("() => { delete document.documentElement.dataset.theme }")

    return take


def _page_errors(message: ConsoleMessage) -> list[str]:
    # An error response is not a page error. Tests check how the page handles it.
    if message.type != "error" or message.text.startswith("Failed to load resource"):
        return []
    # A restarting server is unreachable for a moment.
    return [] if "WebSocket connection" in message.text else [message.text]


def _describe(violation: dict[str, Any]) -> str:
    nodes = "; ".join(node["html"][:200] + " " + str(node.get("failureSummary", "")) for node in violation["nodes"])
    return f"{violation['id']}: {violation['help']}: {nodes}"
