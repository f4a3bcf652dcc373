"""The Past screen: the timeline of a session, what changed, undo and redo, and the book."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from playwright.async_api import Page, expect

from tests.acceptance.workspace import Someone, Workspace
from tests.fakes.model_server import KEY, ModelServer
from tests.integration.runs.conftest import says
from tests.patience import PATIENCE
from tests.web.conftest import PHONE, Axe, Screenshot, log_in

AGENT = """
provider: openai-compatible
model: gpt-fake
trust: guided
context_window: 100000
tool_permissions:
  write: {allowed: true}
"""


@pytest.fixture
async def session(workspace: Workspace, model: ModelServer) -> str:
    """A session in which an agent asked twice, was allowed once and denied once, and in which Ada called tools too."""
    return await asyncio.to_thread(_story, workspace, model)


def _story(workspace: Workspace, model: ModelServer) -> str:
    workspace.write("/plan.md", "one\n")
    access = {"secret": KEY, "base_url": f"{model.url}/v1", "check": False}
    stored = workspace.http.put("/credentials/openai-compatible", json=access, headers=workspace.headers)
    assert stored.status_code == 204, stored.text
    agent = workspace.post("/agents", {"name": "coder", "definition": AGENT}).json()
    session = workspace.post("/sessions", {"agent_id": agent["id"], "title": "The release"}).json()["id"]
    model.say(
        says("I write.", ("write", {"path": "/plan.md", "content": "one\ntwo\n", "overwrite": True})),
        says("And more.", ("write", {"path": "/draft.md", "content": "x\n"})),
        says("Done."),
    )
    run = workspace.post(f"/sessions/{session}/messages", {"text": "Plan the release."}).json()
    _decide(workspace, approved=True)
    _decide(workspace, approved=False, reason="Not this one.")
    _until(lambda: workspace.get(f"/runs/{run['id']}").json()["state"] == "ended")
    called = {"tool": "write", "args": {"path": "/mine.md", "content": "mine\n"}, "session_id": session}
    assert workspace.post("/tools", called).status_code == 200
    return str(session)


def _decide(workspace: Workspace, **judgement: Any) -> None:
    _until(lambda: bool(workspace.get("/approvals").json()["items"]))
    [waiting] = workspace.get("/approvals").json()["items"]
    decided = workspace.post(f"/approvals/{waiting['id']}/decision", judgement)
    assert decided.status_code == 200, decided.text


def _until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < deadline


@pytest.fixture
async def past(workspace_page: Page, workspace: Workspace, session: str) -> Page:
    await workspace_page.goto(f"/w/{workspace.id}/past")
    await expect(workspace_page.get_by_role("region", name="Turn: Plan the release.")).to_be_visible()
    return workspace_page


@pytest.mark.req("UI-1", part="past")
async def test_the_timeline_tells_turns_calls_and_decisions_and_what_changed_in_total(
    past: Page, axe: Axe, screenshot: Screenshot
) -> None:
    turn = past.get_by_role("region", name="Turn: Plan the release.")
    await expect(turn.get_by_text("allowed by ada@example.com")).to_be_visible()
    await expect(turn.get_by_text("denied by ada@example.com: “Not this one.”")).to_be_visible()
    await expect(past.get_by_role("region", name="Calls outside turns")).to_contain_text("/mine.md")
    await axe(past)
    await screenshot(past, "past")

    await past.get_by_role("button", name="What changed in total").click()
    dialog = past.get_by_role("dialog")
    await expect(dialog.get_by_role("listitem")).to_have_count(2)
    await dialog.get_by_text("/plan.md").click()
    await expect(dialog.get_by_role("region", name="Diff of /plan.md")).to_contain_text("two")
    await axe(past)
    await screenshot(past, "past-changes")


@pytest.mark.req("UI-1", part="undo")
@pytest.mark.req("WS-12", part="in the web UI")
async def test_a_call_is_undone_after_a_preview_and_done_again_by_keyboard(
    past: Page, workspace: Workspace, axe: Axe, screenshot: Screenshot
) -> None:
    await past.get_by_role("button", name="Undo write /plan.md").press("Enter")
    dialog = past.get_by_role("dialog")
    await expect(dialog.get_by_text("1 file would change")).to_be_visible()
    await dialog.get_by_role("listitem").get_by_text("/plan.md").click()
    await expect(dialog.get_by_label("What would become of /plan.md").first).to_be_visible()
    await axe(past)
    await screenshot(past, "past-undo")
    await dialog.get_by_role("button", name="Undo 1 file").press("Enter")

    await expect(past.get_by_text("It is undone.")).to_be_visible()
    assert workspace.on_disk("/plan.md").read_text() == "one\n"
    await past.get_by_role("button", name="Redo write /plan.md").press("Enter")
    await dialog.get_by_role("button", name="Redo 1 file").press("Enter")
    await expect(past.get_by_text("It is done again.")).to_be_visible()
    assert workspace.on_disk("/plan.md").read_text() == "one\ntwo\n"


@pytest.mark.req("UI-1", part="undo")
async def test_what_others_changed_since_is_shown_with_both_versions_and_left_alone_unless_forced(
    past: Page, workspace: Workspace, axe: Axe, screenshot: Screenshot
) -> None:
    workspace.place("/plan.md", "one\ntwo\nby hand\n")

    await past.get_by_role("button", name="Undo turn").click()
    dialog = past.get_by_role("dialog")
    await expect(dialog.get_by_text("1 file would be left alone")).to_be_visible()
    await expect(dialog.get_by_role("button", name="Undo 0 files")).to_be_disabled()
    await dialog.get_by_text("Changed by someone else since.").click()
    await expect(dialog.get_by_text("by hand")).to_be_visible()
    await axe(past)
    await screenshot(past, "past-conflict")
    await dialog.get_by_label("Also files that others have changed since").check()
    await dialog.get_by_role("button", name="Undo 1 file").click()

    await expect(past.get_by_text("It is undone.")).to_be_visible()
    assert workspace.on_disk("/plan.md").read_text() == "one\n"


@pytest.mark.req("UI-1", part="audit")
async def test_the_book_is_filtered_read_and_verified_on_a_phone_too(
    past: Page, axe: Axe, screenshot: Screenshot
) -> None:
    await past.get_by_role("button", name="Book").click()
    await expect(past.get_by_role("row").nth(1)).to_be_visible()
    await past.get_by_label("Outcome").select_option("refused")
    await expect(past.get_by_role("row")).to_have_count(2)
    await expect(past.get_by_role("row").nth(1)).to_contain_text("APPROVAL_DENIED")
    await past.get_by_label("Who").select_option(label="coder (agent)")
    await past.get_by_role("button", name="Show record").click()
    await expect(past.get_by_role("region", name="The whole record")).to_contain_text("/draft.md")
    await past.keyboard.press("Escape")

    await past.get_by_role("button", name="Verify the book").click()
    await expect(past.get_by_text("The book is whole")).to_be_visible()
    await past.get_by_label("Outcome").select_option("")
    await past.get_by_label("Who").select_option("")
    await axe(past)
    await screenshot(past, "past-book")
    await past.set_viewport_size(PHONE)
    await screenshot(past, "past-book-phone")
    assert await past.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    await past.get_by_role("button", name="Timeline").click()
    await expect(past.get_by_role("region", name="Turn: Plan the release.")).to_be_visible()
    await axe(past)
    await screenshot(past, "past-phone")
    assert await past.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


@pytest.mark.req("UI-1", part="audit")
async def test_who_is_no_owner_is_told_that_the_book_is_not_for_them(
    page: Page, workspace: Workspace, grace: Someone, server: Any
) -> None:
    workspace.admit(grace, "member")
    await log_in(page, grace, server)
    await page.goto(f"/w/{workspace.id}/past?view=book")

    await expect(page.get_by_text("The book is for owners")).to_be_visible()
