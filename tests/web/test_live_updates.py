"""The activity of a workspace in the page: news arrive without polling, also after a lost connection."""

import asyncio

import pytest
from playwright.async_api import Browser, Page, Request, WebSocketRoute, expect

from tests.acceptance.serving import Serving
from tests.acceptance.workspace import Someone, Workspace
from tests.web.conftest import Axe, log_in

ASKS = "trust: supervised\ntool_permissions: {write: {allowed: true}}"
SCREENS = ("chat", "approvals", "files", "history", "schedules", "settings/members")


async def test_an_approval_a_session_and_a_file_of_others_appear_while_the_page_is_open(
    workspace_page: Page, workspace: Workspace
) -> None:
    page = workspace_page
    await expect(page.get_by_text("No sessions yet")).to_be_visible()
    agent = workspace.agent(ASKS)
    agent.post("/tools", {"tool": "write", "args": {"path": "/docs/a.md", "content": "a"}})
    await expect(page.get_by_text("1 pending").first).to_be_attached()

    workspace.post("/sessions", {"title": "Begun elsewhere"})
    await expect(page.get_by_role("link", name="Begun elsewhere")).to_be_visible()

    await page.goto(f"/w/{workspace.id}/files")
    await expect(page.get_by_role("tree")).to_be_visible()
    workspace.write("/written-elsewhere.txt", "x")
    await expect(page.get_by_role("treeitem", name="written-elsewhere.txt")).to_be_visible()


async def test_a_page_without_a_connection_says_so_and_catches_up_when_it_is_back(
    workspace_page: Page, workspace: Workspace, axe: Axe
) -> None:
    page, network = workspace_page, Network()
    await page.route_web_socket("**/ws", network.connect)
    await page.reload()
    await expect(page.get_by_text("No sessions yet")).to_be_visible()
    await network.is_connected.wait()
    await network.lose()
    await expect(page.get_by_role("status", name="Connection")).to_contain_text("out of date")
    await axe(page)
    workspace.post("/sessions", {"title": "While you were away"})

    network.is_lost = False
    await page.get_by_role("button", name="Try now").click()
    await expect(page.get_by_role("link", name="While you were away")).to_be_visible()
    await expect(page.get_by_role("status", name="Connection")).to_be_empty()


@pytest.mark.long
async def test_an_idle_page_makes_at_most_two_requests_a_minute(
    browser: Browser, server: Serving, ada: Someone, workspace: Workspace
) -> None:
    requests: list[str] = []

    def note(request: Request) -> None:
        requests.append(request.url)

    for screen in SCREENS:
        context = await browser.new_context(base_url=server.origin)
        page = await context.new_page()
        await page.clock.install()
        await log_in(page, ada, server)
        await page.goto(f"/w/{workspace.id}/{screen}", wait_until="networkidle")
        await expect(page.get_by_role("main")).to_be_visible()
        page.on("request", note)
        await page.clock.run_for(60_000)
        await page.wait_for_load_state("networkidle")
        await context.close()

    assert len(requests) <= 2 * len(SCREENS), requests


class Network:
    """The WebSockets of a page, which can be lost."""

    def __init__(self) -> None:
        self.is_lost = False
        self.is_connected = asyncio.Event()
        self._sockets: list[WebSocketRoute] = []

    async def connect(self, socket: WebSocketRoute) -> None:
        if self.is_lost:
            await socket.close()
            return
        socket.connect_to_server()
        self._sockets.append(socket)
        self.is_connected.set()

    async def lose(self) -> None:
        self.is_lost = True
        for socket in self._sockets:
            await socket.close()
