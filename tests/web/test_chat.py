"""The chat: starting a session, messages and calls in order, and the same conversation after a reload."""

from playwright.async_api import Page, expect

from tests.acceptance.workspace import Workspace
from tests.fakes.model_server import ModelServer
from tests.integration.runs.conftest import says
from tests.web.builders import begin, hire
from tests.web.conftest import PHONE, Axe, Screenshot


async def test_a_new_session_shows_messages_and_calls_in_order(
    workspace_page: Page, workspace: Workspace, model: ModelServer, axe: Axe, screenshot: Screenshot
) -> None:
    page = workspace_page
    hire(workspace, model)
    workspace.write("/notes.md", "# Notes\n\nBuy milk.\n")
    await page.get_by_role("button", name="New", exact=True).click()
    await expect(page.get_by_text("uses tools")).to_be_visible()
    await page.get_by_role("textbox", name="Title").fill("Shopping")
    await page.get_by_role("button", name="Start").click()
    model.say(
        says("I look at the notes.", ("read", {"path": "/notes.md"})),
        says("You must **buy milk**.\n\n```py\nprint('milk')\n```\n", thinking="There is a note about milk."),
    )
    await page.get_by_role("textbox", name="Message").fill("What must I do?")
    await page.keyboard.press("Enter")

    conversation = page.get_by_role("log", name="Conversation")
    await expect(conversation.locator("strong", has_text="buy milk")).to_be_visible()
    await expect(conversation.get_by_text("Thought")).to_be_visible()
    rows = conversation.get_by_role("article")
    await expect(rows).to_have_count(4)
    labels = [await row.get_attribute("aria-label") for row in await rows.all()]
    assert labels == ["You", "Agent", "Call of read", "Agent"]

    call = conversation.get_by_role("button", name="read /notes.md")
    await expect(call).to_have_attribute("aria-expanded", "false")
    await call.click()
    await expect(conversation.get_by_role("region", name="Result")).to_contain_text("Buy milk.")
    await axe(page)
    await screenshot(page, "chat")

    before = await conversation.inner_text()
    await page.reload()
    await expect(conversation.locator("strong", has_text="buy milk")).to_be_visible()
    await conversation.get_by_role("button", name="read /notes.md").click()
    await expect(conversation.get_by_role("region", name="Result")).to_be_visible()
    assert await conversation.inner_text() == before

    await page.set_viewport_size(PHONE)
    assert await page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    await axe(page)
    await screenshot(page, "chat-phone")
    await page.get_by_role("link", name="All sessions").click()
    await expect(page.get_by_role("link", name="Shopping")).to_be_visible()


async def test_a_child_run_is_shown_in_the_call_that_started_it(
    workspace_page: Page, workspace: Workspace, model: ModelServer, axe: Axe, screenshot: Screenshot
) -> None:
    """Its approval is decided in the parent's session, without opening the child's."""
    page = workspace_page
    session = begin(workspace, hire(workspace, model), title="Delegate")
    task = {"task": "Write the summary.", "title": "Write the summary"}
    model.say(
        says("I give this to another one.", ("run_agent", task)),
        says("I write it.", ("write", {"path": "/summary.md", "content": "All is well.\n"})),
    )
    await page.goto(f"/w/{workspace.id}/chat/{session}")
    await page.get_by_role("textbox", name="Message").fill("Summarize.")
    await page.keyboard.press("Enter")

    block = page.get_by_role("region", name="Child run: Write the summary")
    await expect(block.get_by_text("waiting for you", exact=True).first).to_be_visible()
    await expect(page.get_by_text("The agent waits for its child runs.")).to_be_visible()
    await axe(page)
    await screenshot(page, "chat-child-run")
    model.say(says("Written."), says("It is done."))
    await block.get_by_role("button", name="Approve", exact=True).click()

    await expect(page.get_by_text("It is done.")).to_be_visible()
    await expect(block.get_by_text("ended")).to_be_visible()
    await block.get_by_role("button", name="Write the summary", exact=False).first.click()
    await expect(block.get_by_text("I write it.")).to_be_visible()
    await axe(page)
    await screenshot(page, "chat-child-run-open")
    await page.set_viewport_size(PHONE)
    assert await page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    await block.get_by_role("link", name="Open the session of Write the summary").click()
    await expect(page.get_by_role("link", name="Child run")).to_be_visible()
