"""Notifications of the browser, and sessions that the palette finds by what was said in them."""

import re
from collections.abc import Callable

import pytest
from playwright.async_api import Page, expect

from tests.acceptance.conftest import registered
from tests.acceptance.serving import Serving
from tests.acceptance.workspace import Someone, Workspace
from tests.fakes.model_server import ModelServer
from tests.integration.api.accounts import new_email
from tests.integration.runs.conftest import says
from tests.web.builders import begin, hire
from tests.web.conftest import Axe, Screenshot, log_in

# Records notifications instead of showing them, and lets the test hide the page.
RECORDER = """
window.shown = [];
window.Notification = class {
  static permission = "default";
  static async requestPermission() { return (window.Notification.permission = "granted"); }
  constructor(title, options) {
    Object.assign(this, { title, ...options });
    document.documentElement.dataset.shown = window.shown.push(this);
  }
  close() { this.isClosed = true; }
};
let isHidden = false;
Object.defineProperty(document, "hidden", { get: () => isHidden });
window.hide = (hidden) => { isHidden = hidden; document.dispatchEvent(new Event("visibilitychange")); };
"""


async def test_what_begins_to_wait_while_the_page_is_hidden_is_notified_once_and_opened_by_a_click(
    page: Page,
    server: Serving,
    new_workspace: Callable[[Someone], Workspace],
    model: ModelServer,
    axe: Axe,
    screenshot: Screenshot,
) -> None:
    lin = registered(server, new_email())
    workspace = new_workspace(lin)
    await log_in(page, lin, server)
    await page.add_init_script(RECORDER)
    session = begin(workspace, hire(workspace, model), title="Release")
    await page.goto(f"/w/{workspace.id}/settings/account")
    choice = page.get_by_label("Notify me in this browser when something waits for me")
    await expect(choice).not_to_be_checked()

    approvals = page.get_by_role("navigation", name="Screens").get_by_role("link", name="Approvals")

    # Until it is turned on, and while the page is seen, there is none.
    write(workspace, model, session, "/first.md")
    await expect(approvals).to_contain_text("1")
    await page.evaluate("hide(true)")
    await choice.check()
    await expect(choice).to_be_checked()
    await axe(page)
    await screenshot(page, "settings-notifications")
    await page.evaluate("hide(false)")
    other = begin(workspace, hire(workspace, model, name="writer"), title="Notes")
    write(workspace, model, other, "/second.md")
    await expect(approvals).to_contain_text("2")
    assert await page.evaluate("shown.length") == 0

    await page.evaluate("hide(true)")
    third = begin(workspace, hire(workspace, model, name="tidier"), title="Tidy")
    write(workspace, model, third, "/third.md")
    await expect(page.locator("html")).to_have_attribute("data-shown", "1")
    assert await page.evaluate("shown[0].title") == "tidier wants to use write"
    assert await page.evaluate("shown[0].body") == "website\n/third.md"
    write(workspace, model, begin(workspace, hire(workspace, model, name="last"), title="Last"), "/fourth.md")
    await expect(page.locator("html")).to_have_attribute("data-shown", "2")
    assert await page.evaluate("new Set(shown.map(({ tag }) => tag)).size") == 2
    await page.evaluate("shown[0].onclick()")
    await expect(page).to_have_url(re.compile(r"/approvals/[0-9a-f-]{36}$"))
    await expect(page.get_by_role("region", name="Approval of write").first).to_contain_text("/third.md")
    assert await page.evaluate("shown[0].isClosed")


def write(workspace: Workspace, model: ModelServer, session: str, path: str) -> None:
    model.say(says("", ("write", {"path": path, "content": "x\n"})))
    sent = workspace.post(f"/sessions/{session}/messages", {"text": f"Write {path}"})
    assert sent.status_code == 202, sent.text


@pytest.mark.long
async def test_the_palette_finds_a_session_by_what_was_said_and_opens_it_there(
    workspace_page: Page, workspace: Workspace, model: ModelServer, axe: Axe, screenshot: Screenshot
) -> None:
    page = workspace_page
    session = begin(workspace, hire(workspace, model), title="Weekly notes")
    texts = [f"Note {number}: {'words ' * 40}" for number in range(12)]
    await page.goto(f"/w/{workspace.id}/chat/{session}")
    conversation = page.get_by_role("log", name="Conversation")
    for text in ["The heron stood in the reeds.", *texts]:
        model.say(says(f"I keep it: {text[:7]}."))
        workspace.post(f"/sessions/{session}/messages", {"text": text})
        await expect(conversation.get_by_text(f"I keep it: {text[:7]}.")).to_be_visible()
    await page.get_by_role("link", name="Files").click()
    await page.keyboard.press("Control+k")
    palette = page.get_by_role("dialog", name="Command palette")
    await expect(palette.get_by_role("combobox")).to_be_focused()
    await page.keyboard.type("heron reeds")
    option = palette.get_by_role("option", name="Weekly notes")
    await expect(option).to_contain_text("The heron stood in the reeds.")
    await axe(page)
    await screenshot(page, "palette-found")
    await page.keyboard.press("Enter")
    await expect(page).to_have_url(re.compile(rf"/chat/{session}#"))
    await expect(conversation.get_by_text("The heron stood in the reeds.")).to_be_in_viewport()
