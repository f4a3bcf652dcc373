"""The page of one run: its turns, calls, decisions, child runs and cost."""

from playwright.async_api import Page, expect

from tests.acceptance.workspace import Workspace
from tests.fakes.model_server import ModelServer
from tests.integration.runs.conftest import says
from tests.web.builders import begin, hire
from tests.web.conftest import PHONE, Axe, Screenshot


async def test_a_run_shows_its_turns_calls_decisions_waits_and_child_runs(
    workspace_page: Page, workspace: Workspace, model: ModelServer, axe: Axe, screenshot: Screenshot
) -> None:
    page = workspace_page
    session = begin(workspace, hire(workspace, model), title="Release")
    task = {"task": "Summarize the notes.", "title": "Summarize"}
    model.say(
        says("I look first.", ("ls", {"path": "/"}), ("read", {"path": "/missing.md"})),
        says("I note it.", ("write", {"path": "/notes.md", "content": "one\n"})),
    )
    sent = workspace.post(f"/sessions/{session}/messages", {"text": "Prepare the release."})
    run = sent.json()["id"]
    await page.goto(f"/w/{workspace.id}/run/{run}")
    timeline = page.get_by_role("list", name="Timeline")

    # What waits is decided from here, and the page follows without a reload.
    waiting = page.get_by_role("region", name="Waiting")
    await expect(waiting).to_contain_text("A call of write waits for approval")
    await waiting.get_by_role("link", name="Decide").click()
    model.say(says("I give the rest away.", ("run_agent", task)), says("A summary."), says("All is done."))
    await page.get_by_role("region", name="Approval of write").get_by_role("button", name="Approve", exact=True).click()
    await page.go_back()
    await expect(timeline.get_by_role("region", name="Turn 4")).to_contain_text("All is done.")
    await expect(page.get_by_role("region", name="Waiting")).to_have_count(0)

    first, second = (timeline.get_by_role("region", name=f"Turn {number}") for number in (1, 2))
    await expect(first.get_by_role("listitem").filter(has_text="ls /")).to_contain_text("done")
    await expect(first.get_by_role("listitem").filter(has_text="/missing.md")).to_contain_text("failed")
    await expect(second).to_contain_text("1 file changed")
    await expect(second).to_contain_text("Approval required by rule trust.guided")
    await expect(second).to_contain_text("approved by ada@example.com at ")
    facts = page.get_by_role("region", name="Run", exact=True)
    await expect(facts).to_contain_text("unknown price")
    await expect(facts).to_contain_text("Calls4")
    await axe(page)
    await screenshot(page, "run")
    await page.set_viewport_size(PHONE)
    assert await page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    await screenshot(page, "run-phone")

    # Its links lead to the child run and back, to the place in the conversation, and to the review.
    await timeline.get_by_role("link", name="Child run: Summarize the notes.").click()
    await expect(timeline).to_contain_text("A summary.")
    await page.get_by_role("link", name="Started by another run").click()
    await timeline.get_by_role("link", name="Turn 2 in the conversation").click()
    await expect(page.get_by_role("log", name="Conversation").get_by_text("I note it.")).to_be_in_viewport()
    await page.go_back()
    await page.get_by_role("link", name="Review its changes").click()
    await expect(page.get_by_role("article", name="/notes.md")).to_be_visible()
