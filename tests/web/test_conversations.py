"""Conversations of several people: authors, forks, search, and what members see who only read."""

import httpx2
import pytest
from playwright.async_api import Page, expect

from tests.acceptance.serving import Serving
from tests.acceptance.workspace import Someone, Workspace
from tests.fakes.model_server import ModelServer
from tests.integration.runs.conftest import says
from tests.wait_until import PATIENCE
from tests.web.builders import begin, hire
from tests.web.conftest import PHONE, Axe, Screenshot, log_in


async def send(page: Page, text: str) -> None:
    await page.get_by_role("textbox", name="Message", exact=True).fill(text)
    await page.keyboard.press("Enter")


async def test_a_message_is_edited_answered_again_and_forked_and_the_original_stays(
    workspace_page: Page, workspace: Workspace, model: ModelServer, axe: Axe, screenshot: Screenshot
) -> None:
    page = workspace_page
    workspace.write("/notes.md", "Buy milk.\n")
    session = begin(workspace, hire(workspace, model), title="Shopping")
    await page.goto(f"/w/{workspace.id}/chat/{session}")
    conversation = page.get_by_role("log", name="Conversation")
    model.say(
        says("I look.", ("read", {"path": "/notes.md"}), ("ls", {"path": "/"})),
        says("You must buy milk."),
    )
    await send(page, "What must I buy?")
    await expect(conversation.get_by_text("You must buy milk.")).to_be_visible()
    mine = conversation.get_by_role("article", name="You")
    await mine.hover()
    await screenshot(page, "chat-authors")
    await axe(page)

    # With the keyboard: the actions of the message are in the order of the page.
    model.say(says("Milk, and for how much?"))
    await mine.get_by_role("button", name="Edit and resend").focus()
    await page.keyboard.press("Enter")
    await page.get_by_role("textbox", name="New text of the message").fill("What must I buy, and for how much?")
    await screenshot(page, "chat-edit")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("link", name="Forked session")).to_be_visible()
    await expect(conversation.get_by_text("Milk, and for how much?")).to_be_visible()
    await expect(conversation.get_by_text("You must buy milk.")).to_have_count(0)
    await expect(page.get_by_role("link", name="Shopping")).to_have_count(2)

    await page.get_by_role("link", name="Forked session").click()
    await expect(conversation.get_by_text("You must buy milk.")).to_be_visible()
    answer = conversation.get_by_role("article", name="Agent").last
    await answer.get_by_role("button", name="Fork from here").click()
    await expect(page.get_by_role("link", name="Forked session")).to_be_visible()
    # With the calls and their results, as people read them.
    await conversation.get_by_role("button", name="Read 1 file, listed 1 folder").click()
    await conversation.get_by_role("button", name="read /notes.md").click()
    await expect(conversation.get_by_role("region", name="Result")).to_contain_text("Buy milk.")

    model.say(says("Milk, again."))
    await (
        conversation.get_by_role("article", name="Agent")
        .last.get_by_role("button", name="Answer again in a fork")
        .click()
    )
    await expect(conversation.get_by_text("Milk, again.")).to_be_visible()
    await expect(conversation.get_by_text("What must I buy?")).to_have_count(1)


async def test_a_new_session_gets_its_title_and_is_found_by_its_words(
    workspace_page: Page, workspace: Workspace, model: ModelServer, axe: Axe, screenshot: Screenshot
) -> None:
    page = workspace_page
    agent = hire(workspace, model)
    begin(workspace, agent, title="Release notes")
    made = workspace.post("/sessions", {"agent_id": agent}).json()["id"]
    await page.goto(f"/w/{workspace.id}/chat/{made}")
    model.say(says("The **parser** drops umlauts."))
    await send(page, "Why does the parser lose letters?")
    await expect(page.get_by_role("heading", name="Why does the parser lose letters?")).to_be_visible()

    search = page.get_by_role("searchbox", name="Search conversations")
    await search.fill("umlau")
    results = page.get_by_role("list", name="Search results")
    await expect(results.get_by_role("link")).to_have_count(1)
    await expect(results.locator("mark")).to_have_text("umlau")
    await axe(page)
    await screenshot(page, "chat-search")
    await search.fill("release")
    await expect(results.get_by_role("link", name="Release notes")).to_be_visible()
    await search.fill("zebra")
    await expect(page.get_by_text("Nothing found")).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("link", name="Release notes")).to_be_visible()


@pytest.mark.long
async def test_a_conversation_that_began_in_another_client_is_shown_and_forked_with_its_messages(
    workspace_page: Page, workspace: Workspace, model: ModelServer, ada: Someone, server: Serving
) -> None:
    page = workspace_page
    hire(workspace, model)
    model.say(says("Four litres."))
    history = [
        {"role": "user", "content": "What must I buy?"},
        {"role": "assistant", "content": "You must buy **milk**."},
        {"role": "user", "content": "How much of it?"},
    ]
    answer = httpx2.post(
        f"{server.origin}/v1/chat/completions",
        json={"model": f"{workspace.id}/coder", "messages": history},
        headers={"Authorization": f"Bearer {ada.token}"},
        trust_env=False,
        timeout=PATIENCE,
    )
    assert answer.status_code == 200, answer.text

    await page.get_by_role("link", name="How much of it?").click()
    conversation = page.get_by_role("log", name="Conversation")
    rows = conversation.get_by_role("article")
    await expect(rows).to_have_count(4)
    assert [await row.get_attribute("aria-label") for row in await rows.all()] == ["You", "Agent", "You", "Agent"]
    await expect(conversation.locator("strong", has_text="milk")).to_be_visible()

    await rows.nth(1).get_by_role("button", name="Fork from here").click()
    await expect(page.get_by_role("link", name="Forked session")).to_be_visible()
    await expect(rows).to_have_count(2)
    await expect(conversation.get_by_text("What must I buy?")).to_be_visible()
    await expect(conversation.locator("strong", has_text="milk")).to_be_visible()


async def test_other_people_see_the_author_and_viewers_no_control(
    workspace_page: Page,
    workspace: Workspace,
    model: ModelServer,
    ada: Someone,
    grace: Someone,
    server: Serving,
    axe: Axe,
    screenshot: Screenshot,
) -> None:
    page = workspace_page
    added = workspace.post("/members", {"email": grace.email, "role": "viewer"})
    assert added.status_code == 201, added.text
    session = begin(workspace, hire(workspace, model), title="Shopping")
    await page.goto(f"/w/{workspace.id}/chat/{session}")
    conversation = page.get_by_role("log", name="Conversation")
    model.say(says("", ("write", {"path": "/a.md", "content": "a\n"})), says("Done."))
    await send(page, "Write.")
    await expect(page.get_by_role("button", name="Approve", exact=True)).to_be_visible()

    # A member on the read-only link: everything to read, nothing to press by mistake.
    await page.goto(f"/w/{workspace.id}/chat/{session}?readonly")
    await expect(conversation.get_by_text("A member or an owner decides.")).to_be_visible()
    await expect(conversation.get_by_role("region", name="Diff of /a.md")).to_be_visible()
    await expect(page.get_by_role("button", name="Approve", exact=True)).to_have_count(0)
    await expect(page.get_by_role("textbox", name="Message", exact=True)).to_have_count(0)
    await page.get_by_role("link", name="Open with controls").click()
    await expect(page.get_by_role("textbox", name="Message", exact=True)).to_be_visible()

    await log_in(page, grace, server)
    await page.goto(f"/w/{workspace.id}/chat/{session}")
    await expect(conversation.get_by_role("article", name=ada.email)).to_contain_text("Write.")
    await expect(page.get_by_text("You can read this session.")).to_be_visible()
    for name in ("Approve", "Edit and resend", "Fork from here", "Rename session", "New"):
        await expect(page.get_by_role("button", name=name, exact=True)).to_have_count(0)
    await axe(page)
    await screenshot(page, "chat-viewer")
    await page.set_viewport_size(PHONE)
    assert await page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    await screenshot(page, "chat-viewer-phone")
