"""The review in the browser: what the agent changed is kept or reverted by file and by hunk."""

import pytest
from playwright.async_api import Page, expect

from tests.acceptance.workspace import Workspace
from tests.fakes.model_server import ModelServer
from tests.integration.runs.conftest import says
from tests.web.builders import begin, hire
from tests.web.conftest import PHONE, Axe

LINES = "".join(f"line {number}\n" for number in range(20))


@pytest.mark.req("CT-1", part="the review in the browser")
async def test_hunks_and_files_are_kept_and_reverted_beside_the_conversation(
    workspace_page: Page, workspace: Workspace, model: ModelServer, axe: Axe
) -> None:
    page = workspace_page
    workspace.write("/a.txt", LINES)
    session = begin(workspace, hire(workspace, model, trust="autonomous"))
    model.say(
        says("", ("edit", {"path": "/a.txt", "old_string": "line 3\n", "new_string": "three\n"})),
        says("", ("edit", {"path": "/a.txt", "old_string": "line 15\n", "new_string": "fifteen\n"})),
        says("", ("write", {"path": "/b.txt", "content": "new\n"})),
        says("Changed."),
    )
    assert workspace.post(f"/sessions/{session}/messages", {"text": "Change it"}).status_code == 202
    await page.goto(f"/w/{workspace.id}/chat/{session}")
    await expect(page.get_by_text("Changed.")).to_be_visible()
    changed = workspace.http.patch(
        f"/workspaces/{workspace.id}/sessions/{session}", json={"trust": "review"}, headers=workspace.headers
    )
    assert changed.status_code == 200, changed.text
    await page.reload()

    review = page.get_by_role("region", name="Review", exact=True)
    await expect(review).to_contain_text("2 files changed (+3 \N{MINUS SIGN}2)")
    await review.get_by_role("button", name="Review", exact=True).click()
    await expect(review.get_by_text("fifteen")).to_be_visible()
    await axe(page)
    # The message box stays usable.
    await expect(page.get_by_role("textbox", name="Message")).to_be_enabled()
    file = review.get_by_role("article", name="/a.txt")
    await file.get_by_role("checkbox", name="Revert hunk 2").check()
    await file.get_by_role("button", name="Revert 1 of 2 hunks").click()
    await expect(review).to_contain_text("1 file changed (+1 \N{MINUS SIGN}0)")
    await page.set_viewport_size(PHONE)
    assert await page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    await review.get_by_role("button", name="Revert all").click()
    await expect(review).to_be_hidden()

    assert workspace.result("read", path="/a.txt")["content"] == LINES.replace("line 3\n", "three\n")
    assert workspace.call("read", path="/b.txt").status_code == 404
