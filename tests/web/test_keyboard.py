"""Chat, inbox and files by keys alone. The review and the screen of approvals have such tests beside their others."""

from collections.abc import Callable

import pytest
from playwright.async_api import Locator, Page, expect

from tests.acceptance.conftest import registered
from tests.acceptance.serving import Serving
from tests.acceptance.workspace import Someone, Workspace
from tests.fakes.model_server import ModelServer
from tests.integration.api.accounts import new_email
from tests.integration.runs.conftest import says
from tests.web.builders import hire
from tests.web.conftest import log_in

MOST_TABS = 60
ASKS = "trust: supervised\ntool_permissions: {write: {allowed: true}, ask_user: {allowed: true}}"


async def tab_to(page: Page, target: Locator, *, key: str = "Tab") -> None:
    """Press Tab until the element has the focus. It must be possible to see that it has."""
    await expect(target).to_be_visible()
    for _ in range(MOST_TABS):
        if await target.evaluate("one => one === document.activeElement"):
            break
        await page.keyboard.press(key)
    await expect(target).to_be_focused()
    await expect(target).to_be_in_viewport()
    assert await target.evaluate("one => one.matches(':focus-visible')")


async def test_a_session_is_started_written_to_approved_and_read_by_keys(
    workspace_page: Page, workspace: Workspace, model: ModelServer
) -> None:
    page, press = workspace_page, workspace_page.keyboard.press
    hire(workspace, model)
    await expect(page.get_by_text("No sessions yet")).to_be_visible()
    await press("n")
    dialog = page.get_by_role("dialog", name="New session")
    await tab_to(page, dialog.get_by_role("textbox", name="Title"))
    await page.keyboard.type("Shopping")
    await press("Enter")
    await expect(page.get_by_role("heading", name="Shopping")).to_be_visible()

    box = page.get_by_role("textbox", name="Message")
    await expect(box).to_be_enabled()
    await press("/")
    await expect(box).to_be_focused()
    await page.keyboard.type("Write the list.")
    model.say(says("", ("write", {"path": "/list.md", "content": "Milk\n"})), says("It is written."))
    await press("Enter")
    conversation = page.get_by_role("log", name="Conversation")
    approval = conversation.get_by_role("region", name="Approval of write")
    await tab_to(page, approval.get_by_role("button", name="Approve", exact=True), key="Shift+Tab")
    await press("Enter")
    await expect(conversation.get_by_text("It is written.")).to_be_visible()

    call = conversation.get_by_role("button", name="write /list.md")
    await tab_to(page, call)
    await press("Enter")
    await expect(conversation.get_by_role("region", name="Diff of /list.md")).to_contain_text("Milk")
    await tab_to(page, conversation.get_by_role("button", name="Undo…"))
    await press("Enter")
    undo = page.get_by_role("dialog", name="Undo write")
    await expect(undo.get_by_text("1 file will change")).to_be_visible()
    await tab_to(page, undo.get_by_role("button", name="Undo 1 file"))
    await press("Enter")
    await expect(undo).to_be_hidden()
    assert not workspace.on_disk("/list.md").exists()


@pytest.mark.long
async def test_an_inbox_is_emptied_by_keys(
    page: Page, server: Serving, new_workspace: Callable[[Someone], Workspace]
) -> None:
    press = page.keyboard.press
    lin = registered(server, new_email())
    workspace = new_workspace(lin)
    agent = workspace.agent(ASKS)
    for path in ("/a.md", "/b.md", "/c.md"):
        agent.post("/tools", {"tool": "write", "args": {"path": path, "content": "x\n"}})
    question = {"name": "why", "question": "What for?", "schema": {"type": "string"}}
    agent.post("/tools", {"tool": "ask_user", "args": {"questions": [question]}})
    await log_in(page, lin, server)
    await page.goto(f"/w/{workspace.id}/chat")
    await expect(page.get_by_role("link", name="Inbox 4 waiting")).to_be_visible()
    await press("g")
    await press("i")

    approvals = page.get_by_role("region", name="Approvals")
    await tab_to(page, page.get_by_role("checkbox", name="Select all"))
    await press("Space")
    await tab_to(page, approvals.get_by_role("checkbox", name="/c.md"))
    await press("Space")
    await tab_to(page, page.get_by_role("toolbar").get_by_role("button", name="Approve"))
    await press("Enter")
    dialog = page.get_by_role("dialog", name="Approve 2 calls?")
    await tab_to(page, dialog.get_by_role("button", name="Approve 2 calls"))
    await press("Enter")
    await expect(approvals.get_by_role("listitem")).to_have_count(1)

    await tab_to(page, approvals.get_by_role("button", name="/c.md"))
    await press("Enter")
    await tab_to(page, approvals.get_by_role("button", name="Reject…"))
    await press("Enter")
    await page.keyboard.type("Two are enough.")
    await tab_to(page, approvals.get_by_role("button", name="Reject", exact=True))
    await press("Enter")
    await expect(approvals).to_have_count(0)

    asked = page.get_by_role("region", name="Questions")
    await tab_to(page, asked.get_by_role("button", name="What for?"))
    await press("Enter")
    await tab_to(page, asked.get_by_role("textbox", name="What for?"))
    await page.keyboard.type("For the release.")
    await tab_to(page, asked.get_by_role("button", name="Answer"))
    await press("Enter")
    await expect(page.get_by_text("Nothing waits for you")).to_be_visible()
    calls = workspace.get("/paused-calls", state="all").json()["items"]
    assert sorted(one["state"] for one in calls) == ["answered", "approved", "approved", "rejected"]


@pytest.mark.long
async def test_files_are_created_found_edited_restored_and_deleted_by_keys(
    workspace_page: Page, workspace: Workspace
) -> None:
    page, press = workspace_page, workspace_page.keyboard.press
    workspace.write("/docs/guide.md", "# Guide\n")
    workspace.write("/notes.md", "one\n")
    await expect(page.get_by_text("No sessions yet")).to_be_visible()
    await press("g")
    await press("f")
    await tab_to(page, page.get_by_role("button", name="New file or folder"))
    await press("Enter")
    path = page.get_by_role("dialog").get_by_label("Path")
    await tab_to(page, path)
    await path.press("End")
    await page.keyboard.type("ideas.md")
    await press("Enter")
    await expect(page.get_by_role("heading", name="/ideas.md")).to_be_visible()

    # The editor has the focus when it opens, and the button that opened it when it closes.
    await tab_to(page, page.get_by_role("button", name="Edit", exact=True))
    await press("Enter")
    editor = page.get_by_role("textbox", name="Edit /ideas.md")
    await expect(editor).to_be_focused()
    await page.keyboard.type("first")
    await press("ControlOrMeta+s")
    await expect(page.get_by_role("button", name="Edit", exact=True)).to_be_focused()
    assert workspace.on_disk("/ideas.md").read_text() == "first"
    await press("Enter")
    await expect(editor).to_be_focused()
    await press("ControlOrMeta+End")
    await page.keyboard.type(" and second")
    # Tab indents in the editor; after Escape it leaves it.
    await press("Escape")
    await tab_to(page, page.get_by_role("button", name="Save"), key="Shift+Tab")
    await press("Enter")
    await expect(page.get_by_role("button", name="Edit", exact=True)).to_be_focused()
    assert workspace.on_disk("/ideas.md").read_text() == "first and second"

    await tab_to(page, page.get_by_role("button", name="History"), key="Shift+Tab")
    await press("Enter")
    await tab_to(page, page.get_by_role("button", name="Version 2"))
    await press("Enter")
    await tab_to(page, page.get_by_role("button", name="Restore this version"))
    await press("Enter")
    await tab_to(page, page.get_by_role("dialog").get_by_role("button", name="Restore"))
    await press("Enter")
    await expect(page.get_by_role("button", name="Version 4 current")).to_be_visible()
    assert workspace.on_disk("/ideas.md").read_text() == "first"

    tree = page.get_by_role("tree")
    await tab_to(page, tree.get_by_role("treeitem", name="ideas.md"), key="Shift+Tab")
    await press("ArrowDown")
    await press("Enter")
    await expect(page.get_by_role("heading", name="/notes.md")).to_be_visible()
    await tab_to(page, page.get_by_role("button", name="Delete", exact=True))
    await press("Enter")
    await tab_to(page, page.get_by_role("dialog").get_by_role("button", name="Delete"))
    await press("Enter")
    await expect(tree.get_by_role("treeitem", name="notes.md")).to_have_count(0)

    await tab_to(page, page.get_by_role("button", name="Search").first)
    await press("Enter")
    await tab_to(page, page.get_by_label("Search", exact=True))
    await page.keyboard.type("Guide")
    await press("Enter")
    await tab_to(page, page.get_by_role("button", name="1 # Guide"))
    await press("Enter")
    await expect(page.get_by_role("heading", name="/docs/guide.md")).to_be_visible()
