"""The History screen: the timeline of a session, its changes, undo and redo, and the audit log."""

import asyncio
import re
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from playwright.async_api import Page, expect

from tests.acceptance.workspace import Someone, Workspace
from tests.fakes.model_server import KEY, ModelServer
from tests.integration.runs.conftest import says
from tests.wait_until import PATIENCE
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
    """A session with one approved and one rejected call of an agent, and a call by Ada."""
    return await asyncio.to_thread(_create_session, workspace, model)


def _create_session(workspace: Workspace, model: ModelServer) -> str:
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
    _wait_until(lambda: workspace.get(f"/runs/{run['id']}").json()["state"] == "ended")
    called: dict[str, Any] = {"tool": "write", "args": {"path": "/mine.md", "content": "mine\n"}}
    called |= {"session_id": session, "as_person": True}
    assert workspace.post("/tools", called).status_code == 200
    return str(session)


def _decide(workspace: Workspace, **decision: Any) -> None:
    _wait_until(lambda: bool(workspace.get("/paused-calls").json()["items"]))
    [waiting] = workspace.get("/paused-calls").json()["items"]
    decided = workspace.post(f"/paused-calls/{waiting['id']}/decision", decision | _seen(waiting))
    assert decided.status_code == 200, decided.text


def _seen(approval: dict[str, Any]) -> dict[str, Any]:
    return {"arguments_sha256": approval["arguments_sha256"]}


def _wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline


@pytest.fixture
async def history_page(workspace_page: Page, workspace: Workspace, session: str) -> Page:
    await workspace_page.goto(f"/w/{workspace.id}/history")
    await expect(workspace_page.get_by_role("region", name="Turn: Plan the release.")).to_be_visible()
    return workspace_page


async def test_the_timeline_shows_turns_calls_decisions_and_all_changes(
    history_page: Page, axe: Axe, screenshot: Screenshot
) -> None:
    turn = history_page.get_by_role("region", name="Turn: Plan the release.")
    await expect(turn.get_by_text("approved by ada@example.com")).to_be_visible()
    await expect(turn.get_by_text("rejected by ada@example.com: “Not this one.”")).to_be_visible()
    await expect(history_page.get_by_role("region", name="Calls outside turns")).to_contain_text("/mine.md")
    await axe(history_page)
    await screenshot(history_page, "history")

    await history_page.get_by_role("button", name="All changes").click()
    dialog = history_page.get_by_role("dialog")
    await expect(dialog.get_by_role("listitem")).to_have_count(2)
    await dialog.get_by_text("/plan.md").click()
    await expect(dialog.get_by_role("region", name="Diff of /plan.md")).to_contain_text("two")
    await axe(history_page)
    await screenshot(history_page, "history-changes")


@pytest.mark.long
async def test_a_call_shows_how_long_it_worked_without_the_wait_for_its_approval(
    history_page: Page, workspace: Workspace, session: str
) -> None:
    calls = workspace.get(f"/sessions/{session}/calls").json()["items"]
    [approved] = [one for one in calls if one["decision"] and one["decision"]["state"] == "approved"]
    decided, ended = milliseconds(approved["decision"]["decided_at"]), milliseconds(approved["ended_at"])
    assert milliseconds(approved["started_at"]) < decided < ended
    work = ended - decided
    turn = history_page.get_by_role("region", name="Turn: Plan the release.")
    row = turn.get_by_role("listitem").filter(has_text="approved by")
    await expect(row).to_contain_text(f", {work} ms" if work < 1_000 else f", {work / 1_000:.1f} s")
    await expect(turn.get_by_role("listitem").filter(has_text="rejected by")).not_to_contain_text(
        re.compile(r", [\d.]+ m?s")
    )

    # The conversation has it from the event of the result.
    events = workspace.get(f"/sessions/{session}/events").json()["items"]
    [result] = [
        one["payload"] for one in events if one["type"] == "tool-result" and one["payload"]["toolId"] == approved["id"]
    ]
    assert result["durationMs"] <= work + 1
    await history_page.goto(f"/w/{workspace.id}/chat/{session}")
    shown = history_page.get_by_role("article", name="Call of write").first
    took = result["durationMs"]
    await expect(shown).to_contain_text(f"{took} ms" if took < 1_000 else f"{took / 1_000:.1f} s")


def milliseconds(time: str) -> int:
    """A time as a browser reads it."""
    return int(datetime.fromisoformat(time).timestamp() * 1_000)


async def test_a_call_is_undone_after_a_preview_and_redone_by_keyboard(
    history_page: Page, workspace: Workspace, axe: Axe, screenshot: Screenshot
) -> None:
    await history_page.get_by_role("button", name="Undo write /plan.md").press("Enter")
    dialog = history_page.get_by_role("dialog")
    await expect(dialog.get_by_text("1 file will change")).to_be_visible()
    await dialog.get_by_role("listitem").get_by_text("/plan.md").click()
    await expect(dialog.get_by_label("Changes to /plan.md").first).to_be_visible()
    await axe(history_page)
    await screenshot(history_page, "history-undo")
    await dialog.get_by_role("button", name="Undo 1 file").press("Enter")

    await expect(history_page.get_by_text("Undone.")).to_be_visible()
    assert workspace.on_disk("/plan.md").read_text() == "one\n"
    await history_page.get_by_role("button", name="Redo write /plan.md").press("Enter")
    await dialog.get_by_role("button", name="Redo 1 file").press("Enter")
    await expect(history_page.get_by_text("Redone.")).to_be_visible()
    assert workspace.on_disk("/plan.md").read_text() == "one\ntwo\n"


@pytest.mark.long
async def test_undo_skips_files_that_others_changed_unless_forced(
    history_page: Page, workspace: Workspace, axe: Axe, screenshot: Screenshot
) -> None:
    workspace.put_file("/plan.md", "one\ntwo\nby hand\n")

    await history_page.get_by_role("button", name="Undo turn").click()
    dialog = history_page.get_by_role("dialog")
    await expect(dialog.get_by_text("1 file skipped")).to_be_visible()
    await expect(dialog.get_by_role("button", name="Undo 0 files")).to_be_disabled()
    await dialog.get_by_text("Changed by someone else.").click()
    await expect(dialog.get_by_text("by hand")).to_be_visible()
    await axe(history_page)
    await screenshot(history_page, "history-conflict")
    await dialog.get_by_label("Also undo files that others changed").check()
    await dialog.get_by_role("button", name="Undo 1 file").click()

    await expect(history_page.get_by_text("Undone.")).to_be_visible()
    assert workspace.on_disk("/plan.md").read_text() == "one\n"


async def test_the_audit_log_is_filtered_read_and_verified_on_a_phone_too(
    history_page: Page, axe: Axe, screenshot: Screenshot
) -> None:
    await history_page.get_by_role("button", name="Audit log", exact=True).click()
    await expect(history_page.get_by_role("row").nth(1)).to_be_visible()
    await history_page.get_by_label("Outcome").select_option("denied")
    await expect(history_page.get_by_role("row")).to_have_count(2)
    await expect(history_page.get_by_role("row").nth(1)).to_contain_text("APPROVAL_DENIED")
    await history_page.get_by_label("Who").select_option(label="coder (agent)")
    await history_page.get_by_role("button", name="Show record").click()
    await expect(history_page.get_by_role("region", name="Full record")).to_contain_text("/draft.md")
    await history_page.keyboard.press("Escape")

    await history_page.get_by_role("button", name="Verify audit log").click()
    await expect(history_page.get_by_text("Audit log verified")).to_be_visible()
    await history_page.get_by_label("Outcome").select_option("")
    await history_page.get_by_label("Who").select_option("")
    await axe(history_page)
    await screenshot(history_page, "history-audit-log")
    await history_page.set_viewport_size(PHONE)
    await screenshot(history_page, "history-audit-log-phone")
    assert await history_page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    await history_page.get_by_role("button", name="Timeline").click()
    await expect(history_page.get_by_role("region", name="Turn: Plan the release.")).to_be_visible()
    await axe(history_page)
    await screenshot(history_page, "history-phone")
    assert await history_page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


@pytest.mark.long
async def test_only_owners_can_read_the_audit_log(
    page: Page, workspace: Workspace, grace: Someone, server: Any
) -> None:
    workspace.admit(grace, "member")
    await log_in(page, grace, server)
    await page.goto(f"/w/{workspace.id}/history?view=audit-log")

    await expect(page.get_by_text("Only owners can read the audit log")).to_be_visible()
