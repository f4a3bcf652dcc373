"""Finished calls show what they did: diffs, terminals, matches, tables and images; JSON only under Details."""

from playwright.async_api import Locator, Page, expect

from tests.acceptance.workspace import Workspace
from tests.fakes.model_server import ModelServer
from tests.integration.runs.conftest import says
from tests.web.builders import begin, hire
from tests.web.conftest import PHONE, Axe, Screenshot

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
# Green and red text, a progress bar, and a character that would turn the order of the line.
COLOURS = r"printf '\033[32mPASS\033[0m 12 tests\n10%%\r100%%\n\033[1;31mFAIL\033[0m one \342\200\256 test\n'; exit 3"


async def test_finished_calls_show_what_they_did_and_json_only_on_request(
    workspace_page: Page, workspace: Workspace, model: ModelServer, axe: Axe, screenshot: Screenshot
) -> None:
    page = workspace_page
    session = begin(workspace, hire(workspace, model, trust="autonomous"), title="Tidy the parser")
    workspace.write("/src/parser.py", "def parse(text):\n    return text.split()\n")
    workspace.write("/people.csv", 'name,age\n"Lovelace, Ada",36\nGrace,85\n')
    workspace.write("/logo.png", {"encoding": "base64", "data": PIXEL})
    model.say(
        says(
            "I look at the project first.",
            ("grep", {"pattern": "split"}),
            ("ls", {"path": "/"}),
            ("read", {"path": "/people.csv"}),
            ("read", {"path": "/logo.png"}),
        ),
        says("", ("read", {"path": "/src/parser.py"})),
        says(
            "Now I change it.",
            ("edit", {"path": "/src/parser.py", "old_string": "text.split()", "new_string": "text.splitlines()"}),
        ),
        says("I run the tests.", ("bash", {"command": COLOURS})),
        says("One test fails."),
    )
    await page.goto(f"/w/{workspace.id}/chat/{session}")
    await page.get_by_role("textbox", name="Message").fill("Tidy the parser.")
    await page.keyboard.press("Enter")
    conversation = page.get_by_role("log", name="Conversation")
    await expect(conversation.get_by_text("One test fails.")).to_be_visible()

    group = conversation.get_by_role("button", name="Searched 1 time, listed 1 folder, read 3 files")
    await expect(group).to_have_attribute("aria-expanded", "false")
    await expect(conversation.get_by_role("article", name="Call of")).to_have_count(2)
    await group.click()
    await expect(conversation.get_by_role("article", name="Call of")).to_have_count(7)

    match = await _open(conversation, "grep split")
    await expect(match.get_by_role("link", name="/src/parser.py, line 2")).to_contain_text("return text.split()")
    await expect(match.get_by_role("region", name="Raw result")).to_have_count(0)
    await match.get_by_text("Details").click()
    await expect(match.get_by_role("region", name="Raw result")).to_contain_text('"line_number": 2')
    await _close(conversation, "grep split")

    table = await _open(conversation, "read /people.csv")
    await expect(table.get_by_role("cell", name="Lovelace, Ada")).to_be_visible()
    image = await _open(conversation, "read /logo.png")
    await expect(image.get_by_role("img", name="/logo.png")).to_be_visible()
    await _close(conversation, "read /logo.png")

    change = await _open(conversation, "edit /src/parser.py")
    await expect(change.get_by_role("region", name="Diff of /src/parser.py")).to_contain_text("splitlines")

    terminal = await _open(conversation, "bash printf")
    output = terminal.get_by_role("region", name="Result")
    await expect(output.get_by_text("PASS")).to_have_class("text-good")
    await expect(output.get_by_text("FAIL")).to_have_class("text-bad font-bold")
    await expect(output).to_contain_text("\\u202e")
    assert "10%" not in (await output.inner_text()).replace("100%", "")
    await expect(terminal.get_by_text("Exit code 3")).to_be_visible()
    await axe(page)
    await screenshot(page, "chat-calls")
    await page.set_viewport_size(PHONE)
    assert await page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    await axe(page)
    await screenshot(page, "chat-calls-phone")

    await page.set_viewport_size({"width": 1280, "height": 800})
    await (await _open(conversation, "ls /")).get_by_role("link", name="people.csv").click()
    await page.wait_for_url("**/files?path=%2Fpeople.csv")


async def test_a_command_shows_its_output_while_it_runs(
    workspace_page: Page, workspace: Workspace, model: ModelServer, screenshot: Screenshot
) -> None:
    page = workspace_page
    session = begin(workspace, hire(workspace, model, trust="autonomous"), title="Wait for a file")
    # Ends when the page has shown its first line.
    command = r"printf '\033[33mwaiting\033[0m\n'; until [ -e go ]; do sleep 0.1; done; echo went"
    model.say(says("", ("bash", {"command": command, "timeout": 60})), says("Done."))
    await page.goto(f"/w/{workspace.id}/chat/{session}")
    await page.get_by_role("textbox", name="Message").fill("Wait.")
    await page.keyboard.press("Enter")
    output = page.get_by_role("region", name="Output so far")
    await expect(output.get_by_text("waiting")).to_have_class("text-warn")
    await screenshot(page, "chat-running")
    await page.get_by_role("button", name="Stop").click()
    await expect(page.get_by_text("Cancelled.")).to_be_visible()


async def _open(conversation: Locator, name: str) -> Locator:
    """Expand a call and return its block."""
    button = conversation.get_by_role("button", name=name)
    await button.click()
    await expect(button).to_have_attribute("aria-expanded", "true")
    return conversation.get_by_role("article").filter(has=conversation.page.get_by_role("button", name=name))


async def _close(conversation: Locator, name: str) -> None:
    await conversation.get_by_role("button", name=name).click()
