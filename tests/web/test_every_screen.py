"""Every screen with something on it: accessible in light and dark, and usable with a finger on a phone."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from playwright.async_api import Browser, Page, expect

from tests.acceptance.serving import Serving
from tests.acceptance.workspace import Someone, Workspace
from tests.fakes.model_server import ModelServer
from tests.integration.runs.conftest import says
from tests.wait_until import PATIENCE
from tests.web.builders import begin, hire
from tests.web.conftest import PHONE, Axe, Screenshot, log_in

FINGER = 44
ASKS = "trust: supervised\ntool_permissions: {write: {allowed: true}}"
QUESTION = {"name": "when", "question": "From when?", "schema": {"type": "string", "enum": ["January", "June"]}}
DAILY = {"name": "Daily report", "cron": "0 9 * * *", "time_zone": "UTC", "message": "Report."}
# A control that is filled with the accent colour is the main one of its place.
SMALL_CONTROLS = f"""
() => {{
  const probe = document.body.appendChild(document.createElement("span"));
  probe.style.background = "var(--accent)";
  const accent = getComputedStyle(probe).backgroundColor;
  probe.remove();
  return [...document.querySelectorAll("button, a, input[type=text], input[type=password], input[type=email]")]
    .filter(one => one.checkVisibility() && (one.matches("input") || getComputedStyle(one).backgroundColor === accent))
    .filter(one => !one.matches("[href='#content']"))
    .map(one => [one.textContent || one.ariaLabel || one.id, one.getBoundingClientRect()])
    .filter(([, box]) => box.height < {FINGER} || box.width < {FINGER})
    .map(([name, box]) => `${{name}}: ${{box.width}} × ${{box.height}}`);
}}
"""


@pytest.fixture
async def screens(workspace: Workspace, model: ModelServer) -> dict[str, str]:
    """The addresses of all screens of a workspace that is in use, each with a text that it shows when it is loaded."""
    return await asyncio.to_thread(_fill, workspace, model)


def _fill(workspace: Workspace, model: ModelServer) -> dict[str, str]:
    workspace.write("/price.py", "RATE = 0.19\n")
    workspace.write("/gone.md", "x\n")
    workspace.result("rm", path="/gone.md")
    agent = hire(workspace, model, name="writer", trust="review")
    guide, asking = begin(workspace, agent, title="Guide"), begin(workspace, agent, title="Questions")
    change = {"path": "/price.py", "old_string": "0.19", "new_string": "0.21"}
    model.say(says("I look.", ("read", {"path": "/price.py"})), says("", ("edit", change)), says("It is **raised**."))
    run = workspace.post(f"/sessions/{guide}/messages", {"text": "Raise the rate."}).json()["id"]
    _until(lambda: workspace.get(f"/runs/{run}").json()["state"] == "ended")
    model.say(says("", ("ask_user", {"questions": [QUESTION]})))
    workspace.post(f"/sessions/{asking}/messages", {"text": "Ask."})
    asked = workspace.agent(ASKS).post("/tools", {"tool": "write", "args": {"path": "/asked.md", "content": "x\n"}})
    assert asked.status_code == 202, asked.text
    _until(lambda: len(workspace.get("/paused-calls").json()["items"]) == 2)
    waiting = {one["kind"]: one["id"] for one in workspace.get("/paused-calls").json()["items"]}
    made = workspace.post("/schedules", DAILY | {"agent_id": agent})
    assert made.status_code == 201, made.text
    screens = {
        "chat": "No session selected",
        f"chat/{guide}": "raised",
        f"chat/{guide}?readonly": "Read-only view",
        f"chat/{asking}": "From when?",
        "approvals": "From when?",
        f"review/session/{guide}": "0.21",
        f"review/run/{run}": "0.21",
        f"review/approval/{waiting['approval']}": "/asked.md",
        "files?path=%2Fprice.py": "0.21",
        "files?path=%2Fprice.py&view=history": "Changes in version 2",
        "files?panel=search": "Search",
        "files?panel=deleted": "/gone.md",
        f"history?session={guide}": "edit",
        "history?view=audit-log": "Verify audit log",
        "schedules": "Daily report",
        "start": "Give it a first task",
    }
    sections = ("members", "agents", "permissions", "mcp", "models", "keys", "usage", "status", "account")
    return (
        {f"/w/{workspace.id}/{path}": text for path, text in screens.items()}
        | {
            "/": "New workspace name",
            "/inbox": "writer changed 1 file",
        }
        | {f"/w/{workspace.id}/settings/{name}": "" for name in sections}
    )


def _until(condition: Any) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline


async def shows(page: Page, address: str, text: str) -> None:
    await page.goto(address)
    await expect(page.get_by_role("heading", level=1).first).to_be_attached()
    if text:
        await expect(page.locator("main, #root").get_by_text(text).first).to_be_attached()
    await expect(page.get_by_text("Loading")).to_have_count(0)


@pytest.mark.long
async def test_axe_finds_nothing_serious_on_any_screen_in_light_and_dark(
    page: Page, server: Serving, ada: Someone, screens: dict[str, str], axe: Axe
) -> None:
    await log_in(page, ada, server)
    for address, text in screens.items():
        await shows(page, address, text)
        await axe(page)


@pytest.fixture
async def phone(browser: Browser, server: Serving, ada: Someone) -> AsyncIterator[Page]:
    context = await browser.new_context(
        base_url=server.origin, viewport=PHONE, has_touch=True, is_mobile=True, reduced_motion="reduce"
    )
    context.set_default_timeout(PATIENCE * 1_000)
    page = await context.new_page()
    await log_in(page, ada, server)
    yield page
    await context.close()


async def test_every_screen_fits_a_phone_and_its_main_controls_a_finger(
    phone: Page, screens: dict[str, str], axe: Axe, screenshot: Screenshot
) -> None:
    flaws: dict[str, Any] = {}
    for address, text in screens.items():
        await shows(phone, address, text)
        if found := await phone.evaluate(SMALL_CONTROLS):
            flaws[address] = found
        if (width := await phone.evaluate("document.documentElement.scrollWidth")) > PHONE["width"]:
            flaws[address] = f"{width} pixels wide"
        # Settings have the most tables and forms.
        if "/settings/" in address:
            await axe(phone)
    assert flaws == {}

    # A change is commented on without a pointer that hovers.
    await phone.goto(next(address for address in screens if "/review/session/" in address))
    await phone.get_by_role("button", name="Comment on hunk 1").tap()
    await expect(phone.get_by_label("Comment on line 1").last).to_be_focused()
    await screenshot(phone, "review-comment-phone")
