"""Approvals: requests from every session, the rule preview before it is saved, and use by keyboard alone."""

import pytest
from playwright.async_api import Page, expect

from tests.acceptance.workspace import Workspace
from tests.fakes.model_server import ModelServer
from tests.integration.runs.conftest import says
from tests.web.builders import begin, hire
from tests.web.conftest import PHONE, Axe, Screenshot

QUESTIONS = [
    {"name": "framework", "question": "Which framework?", "schema": {"type": "string", "enum": ["Vitest", "Jest"]}},
    {
        "name": "targets",
        "question": "Which targets?",
        "schema": {"type": "array", "items": {"type": "string", "enum": ["web", "cli"]}},
    },
    {"name": "retries", "question": "How many retries?", "schema": {"type": "integer", "minimum": 0, "maximum": 5}},
    {"name": "note", "question": "Anything else?", "schema": {"type": "string", "default": "no"}},
]


@pytest.mark.req("UI-1", part="approval and question cards of the whole workspace")
@pytest.mark.req("HU-1", part="in the browser: the rule is shown before it is stored")
async def test_pending_approvals_and_questions_of_all_sessions_are_on_one_screen(
    workspace_page: Page, workspace: Workspace, model: ModelServer, axe: Axe, screenshot: Screenshot
) -> None:
    page = workspace_page
    agent = hire(workspace, model)
    writing, asking = begin(workspace, agent, title="Writing"), begin(workspace, agent, title="Asking")
    model.say(says("", ("write", {"path": "/docs/a.md", "content": "# A\n\nText.\n"})))
    workspace.post(f"/sessions/{writing}/messages", {"text": "Write."})
    await page.get_by_role("link", name="Approvals").first.click()
    approval = page.get_by_role("region", name="Approval of write")
    await expect(approval).to_be_visible()
    model.say(says("", ("ask_user", {"questions": QUESTIONS})), says("Thank you."), says("Written."))
    workspace.post(f"/sessions/{asking}/messages", {"text": "Ask."})
    question = page.get_by_role("form", name="Question")
    await expect(question).to_be_visible()
    await expect(page.get_by_role("link", name="Approvals 2 pending").first).to_be_visible()
    await axe(page)
    await screenshot(page, "approvals")

    await question.get_by_label("Vitest").check()
    await question.get_by_label("cli").check()
    await question.get_by_label("How many retries?").fill("3")
    await question.get_by_role("button", name="Answer").click()
    await expect(question).to_be_hidden()
    [answered] = workspace.get("/questions", all=True).json()["items"]
    assert answered["answers"] == {"framework": "Vitest", "targets": ["cli"], "retries": 3, "note": "no"}

    await page.set_viewport_size(PHONE)
    assert await page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    await axe(page)
    await screenshot(page, "approvals-phone")
    await approval.get_by_role("button", name="Always approve…").click()
    await expect(approval.get_by_label("The rule")).to_contain_text("@project/docs/a.md")
    await approval.get_by_role("button", name="Always approve", exact=True).click()
    await expect(page.get_by_text("No pending approvals")).to_be_visible()
    [grant] = workspace.get("/grants").json()["items"]
    assert grant["rule"] == {"tool": "write", "paths": ["@project/docs/a.md"], "commands": None}


@pytest.mark.req("UI-1", part="keyboard")
async def test_a_call_is_approved_with_the_keyboard_alone(
    workspace_page: Page, workspace: Workspace, model: ModelServer
) -> None:
    page = workspace_page
    session = begin(workspace, hire(workspace, model))
    model.say(says("", ("write", {"path": "/a.md", "content": "a\n"})), says("Written."))
    workspace.post(f"/sessions/{session}/messages", {"text": "Write."})
    await expect(page.get_by_role("link", name="Approvals 1 pending").first).to_be_visible()

    await page.keyboard.press("?")
    await expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_contain_text("Go to Approvals")
    await page.keyboard.press("Escape")
    await page.keyboard.press("Tab")
    await expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    await page.keyboard.press("g")
    await page.keyboard.press("a")
    approve = page.get_by_role("button", name="Approve", exact=True)
    await expect(approve).to_be_visible()
    for _ in range(40):
        if await approve.evaluate("button => button === document.activeElement"):
            break
        await page.keyboard.press("Tab")
    await expect(approve).to_be_focused()
    await page.keyboard.press("Enter")

    await expect(page.get_by_text("No pending approvals")).to_be_visible()
