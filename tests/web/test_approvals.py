"""Approvals: requests from every session, the rule preview before it is saved, and use by keyboard alone."""

import asyncio

from playwright.async_api import Page, Route, expect

from tests.acceptance.pending_approvals import decide
from tests.acceptance.workspace import Someone, Workspace
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
    [answered] = workspace.get("/paused-calls", kind="question", state="all").json()["items"]
    assert answered["answers"] == {"framework": "Vitest", "targets": ["cli"], "retries": 3, "note": "no"}

    await page.set_viewport_size(PHONE)
    assert await page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    await axe(page)
    await screenshot(page, "approvals-phone")
    await approval.get_by_role("button", name="Always approve…").click()
    rule = approval.get_by_label("The rule")
    await expect(rule.get_by_label("Paths 1", exact=True)).to_have_value("@project/docs/**")
    await approval.get_by_text("write: @project/docs/a.md").click()
    await expect(rule.get_by_label("Paths 1", exact=True)).to_have_value("@project/docs/a.md")
    await rule.get_by_label("Paths 1", exact=True).fill("@project/other/**")
    await axe(page)
    await screenshot(page, "approvals-rule")
    await approval.get_by_role("button", name="Always approve", exact=True).click()
    await expect(approval.get_by_role("alert")).to_contain_text("does not cover this call")
    await rule.get_by_label("Paths 1", exact=True).fill("@project/docs/*.md")
    await approval.get_by_role("button", name="Always approve", exact=True).click()
    await expect(page.get_by_text("No pending approvals")).to_be_visible()
    [grant] = workspace.get("/grants").json()["items"]
    assert (grant["rule"]["tools"], grant["rule"]["paths"]) == (["write"], ["@project/docs/*.md"])


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


async def test_a_long_line_does_not_hide_that_it_goes_on(
    workspace_page: Page, workspace: Workspace, model: ModelServer
) -> None:
    page = workspace_page
    session = begin(workspace, hire(workspace, model, trust="supervised"))
    model.say(says("", ("write", {"path": "/a.js", "content": f"var a = '{'a' * 5_000}'; evil();\nlast\n"})))
    workspace.post(f"/sessions/{session}/messages", {"text": "Write."})
    await page.goto(f"/w/{workspace.id}/approvals")
    card = page.get_by_role("region", name="Approval of write")
    diff = card.get_by_role("region", name="Diff of /a.js")
    await expect(diff.locator("[data-line=new]").first).to_be_visible()
    await expect(card.get_by_text("continued below")).to_be_visible()
    await diff.evaluate("one => one.scrollTo(0, one.scrollHeight)")
    await expect(card.get_by_text("continued below")).to_have_count(0)
    await expect(diff.locator("[data-line=new]").last).to_be_in_viewport()


async def test_finished_calls_open_as_diffs_answers_and_commands_in_lines(
    workspace_page: Page, workspace: Workspace, model: ModelServer, axe: Axe, screenshot: Screenshot
) -> None:
    page = workspace_page
    session = begin(workspace, hire(workspace, model, trust="autonomous"))
    command = "cat a.md # first\nwc -l a.md"
    model.say(
        says("", ("write", {"path": "/a.md", "content": "one\u202e\ntwo\n"})),
        says("", ("edit", {"path": "/a.md", "old_string": "two", "new_string": "three"})),
        says("", ("bash", {"command": command})),
        says("", ("ask_user", {"questions": QUESTIONS[:2]})),
        says("Done."),
    )
    workspace.post(f"/sessions/{session}/messages", {"text": "Go."})
    await page.goto(f"/w/{workspace.id}/chat/{session}")
    question = page.get_by_role("form", name="Question")
    await question.get_by_label("Vitest").check()
    await question.get_by_label("cli").check()
    await question.get_by_role("button", name="Answer").click()
    conversation = page.get_by_role("log", name="Conversation")
    await expect(conversation.get_by_text("Done.")).to_be_visible()

    await conversation.get_by_role("button", name="Changed 2 files, ran 1 command").click()
    written = conversation.get_by_role("article", name="Call of write")
    await written.get_by_role("button", name="write /a.md").click()
    lines = written.get_by_role("region", name="Diff of /a.md").locator('[data-line="new"]')
    await expect(lines).to_have_text(["one\\u202e", "two"])
    assert "sha256" not in await written.inner_text(), "and no JSON with hashes"
    edited = conversation.get_by_role("article", name="Call of edit")
    await edited.get_by_role("button", name="edit /a.md").click()
    await expect(edited.locator('[data-line="gone"]')).to_have_text("two")
    await expect(edited.locator('[data-line="new"]')).to_have_text("three")
    ran = conversation.get_by_role("article", name="Call of bash")
    await ran.get_by_role("button", name="bash").first.click()
    assert command in await ran.get_by_role("group", name="Command").inner_text()
    asked = conversation.get_by_role("article", name="Call of ask_user")
    await asked.get_by_role("button", name="ask_user").click()
    await expect(asked.locator("dd")).to_have_text(["Vitest", "cli"])
    await axe(page)
    await screenshot(page, "call-diffs")

    await page.goto(f"/w/{workspace.id}/history/{session}")
    row = page.get_by_role("list", name="Calls").get_by_role("listitem").filter(has_text="cat a.md")
    assert command in await row.inner_text()
    await page.get_by_role("button", name="1 file changed by write").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog.locator('[data-line="new"]')).to_have_text(["one\\u202e", "two"])


async def test_person_who_decides_second_reads_who_was_faster(
    workspace_page: Page, workspace: Workspace, grace: Someone, model: ModelServer
) -> None:
    page = workspace_page
    other = workspace.admit(grace, "member")
    session = begin(workspace, hire(workspace, model))
    model.say(
        says("", ("write", {"path": "/a.md", "content": "a\n"})),
        says("", ("write", {"path": "/b.md", "content": "b\n"})),
        says("Written."),
    )
    workspace.post(f"/sessions/{session}/messages", {"text": "Write."})
    approval = page.get_by_role("region", name="Approval of write")

    # The card closes while it is open.
    await page.goto(f"/w/{workspace.id}/chat/{session}")
    await expect(approval).to_contain_text("/a.md")
    assert decide(other, pending_id(workspace)).status_code == 200
    await expect(approval).to_contain_text("/b.md")
    await expect(page.get_by_role("status").filter(has_text="Already approved by")).to_be_visible()

    # The click comes too late, because the page has not heard of the decision yet.
    await page.goto(f"/w/{workspace.id}/approvals")
    await expect(approval).to_be_visible()
    is_clicked = asyncio.Event()

    async def slowly(route: Route) -> None:
        await is_clicked.wait()
        await route.continue_()

    await page.route("**/paused-calls?*", slowly)
    await page.route("**/paused-calls", slowly)
    assert decide(other, pending_id(workspace)).status_code == 200
    await approval.get_by_role("button", name="Approve", exact=True).click()
    await expect(approval.get_by_role("alert")).to_contain_text("Already approved by")
    is_clicked.set()
    await expect(approval).to_be_hidden()
    await expect(page.get_by_label("Decided by others")).to_contain_text("write: Already approved by")


def pending_id(workspace: Workspace) -> str:
    [pending] = workspace.get("/paused-calls").json()["items"]
    return str(pending["id"])
