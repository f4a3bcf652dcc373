"""The review page: the changes of a session, a run or a pending approval, as a pull request shows them."""

import json
from bisect import bisect_left
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.async_api import Browser, Page, Route, expect

from tests.acceptance.workspace import Workspace
from tests.fakes.model_server import ModelServer
from tests.integration.runs.conftest import says
from tests.web.builders import begin, hire
from tests.web.conftest import PHONE, Axe, Screenshot
from tests.web.review_sessions import BAD, GOOD, changed, changed_files, long_diff, module, path_of, planted

FILES, PLANTED = 60, 37
# Lines that are replaced by as many others, and milliseconds.
LONG, LONGEST_TASK = 5_000, 100


@pytest.mark.req("CT-1", part="the review in the browser")
@pytest.mark.req("UI-2", part="one set of changes, per file and hunk")
@pytest.mark.req("UI-2", part="comments to the agent")
async def test_a_reviewer_finds_reverts_comments_and_keeps_without_leaving_the_page(
    workspace_page: Page, workspace: Workspace, model: ModelServer, axe: Axe, screenshot: Screenshot
) -> None:
    page = workspace_page
    session = changed_files(workspace, model, files=FILES, bad=PLANTED)
    await page.goto(f"/w/{workspace.id}/chat/{session}")
    summary = page.get_by_role("region", name="Review", exact=True)
    await expect(summary).to_contain_text("60 files changed")
    await summary.get_by_role("link", name="Review changes").click()
    review = page.get_by_role("region", name="Changes", exact=True)
    first = review.get_by_role("article").first
    await expect(first.locator(".syntax-keyword").first).to_be_visible()
    await expect(first.locator("mark").first).to_have_text("19")
    await axe(page)
    await screenshot(page, "review")

    # Unchanged lines open where they are.
    await first.get_by_role("button", name="Show 21 unchanged lines").click()
    await expect(first.get_by_text("def discounted(")).to_be_visible()
    await expect(first.get_by_role("button", name="Show 21 unchanged lines")).to_have_count(0)

    # A viewed file folds, and stays viewed after a reload.
    await page.keyboard.press("v")
    await expect(first.get_by_role("checkbox", name="Viewed")).to_be_checked()
    await expect(page.get_by_role("status").filter(has_text="1 of 60 viewed")).to_be_visible()
    await page.reload()
    await expect(first.get_by_role("checkbox", name="Viewed")).to_be_checked()
    await expect(first.locator("[data-line]")).to_have_count(0)
    await page.keyboard.press("j")
    await expect(review.get_by_role("article").nth(1)).to_be_in_viewport()

    # The planted hunk is found through the tree, and reverted alone.
    files = page.get_by_role("navigation", name="Changed files")
    await files.get_by_role("searchbox").fill("part37")
    await files.get_by_role("button", name="part37.py").click()
    bad = review.get_by_role("article", name=path_of(PLANTED))
    await expect(bad.get_by_text(BAD.strip())).to_be_visible()
    await bad.get_by_role("button", name="Revert hunk 2").click()
    await screenshot(page, "review-hunk")
    await bad.get_by_role("button", name="Revert 1 of 2 hunks").click()
    await expect(bad).to_have_count(0)

    # A comment reaches the agent with its place.
    await files.get_by_role("searchbox").fill("part07")
    await files.get_by_role("button", name="part07.py").click()
    commented = review.get_by_role("article", name=path_of(7))
    await commented.get_by_text("RATE = 0.21").hover()
    await commented.get_by_role("button", name="Comment on line new 5").click()
    await commented.get_by_label("Comment on line 5").last.fill("Is this rate valid today?")
    await axe(page)
    await commented.get_by_role("button", name="Add comment").click()
    await screenshot(page, "review-comment")
    model.say(says("It is."))
    await page.get_by_role("button", name="Send 1 comment").click()
    await expect(commented.get_by_text("sent", exact=True)).to_be_visible()
    [message] = [one for one in messages_of(workspace, session) if "Is this rate" in one]
    assert message.endswith(f"{path_of(7)}, line 5:\n> +RATE = 0.21\n\nIs this rate valid today?")

    await page.set_viewport_size({"width": 1720, "height": 900})
    await expect(commented.locator("mark").first).to_have_text("19")
    await screenshot(page, "review-split")
    await page.set_viewport_size(PHONE)
    assert await page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    await axe(page)
    await screenshot(page, "review-phone")

    await page.get_by_role("button", name="Keep all").click()
    await expect(review.get_by_text("Nothing waits for a review")).to_be_visible()
    rest = module(PLANTED).replace("RATE = 0.19", "RATE = 0.21")
    assert workspace.result("read", path=path_of(PLANTED))["content"] == rest
    assert workspace.result("read", path=path_of(12))["content"] == changed(12)
    assert workspace.result("read", path=path_of(13))["content"] == changed(13)


def messages_of(workspace: Workspace, session: str) -> list[str]:
    found = workspace.get(f"/sessions/{session}/messages").json()["items"]
    return [text for one in found if one["role"] == "user" for text in [str(one["content"])]]


@pytest.mark.req("UI-2", part="edit before approving")
async def test_a_person_edits_a_proposed_file_and_approves_exactly_that(
    workspace_page: Page, workspace: Workspace, model: ModelServer, axe: Axe, screenshot: Screenshot
) -> None:
    page = workspace_page
    workspace.write("/src/price.py", module(1))
    session = begin(workspace, hire(workspace, model))
    call = {"path": "/src/price.py", "content": planted(1), "overwrite": True}
    model.say(says("", ("write", call)), says("Your version is better."))
    assert workspace.post(f"/sessions/{session}/messages", {"text": "Raise the tax rate"}).status_code == 202
    await page.goto(f"/w/{workspace.id}/approvals")
    await page.get_by_role("link", name="Open as a review").click()
    file = page.get_by_role("article", name="/src/price.py")
    await expect(file.get_by_text(BAD.strip())).to_be_visible()
    await expect(page.get_by_role("heading", level=1)).to_have_text("coder wants to use write")

    await page.keyboard.press("e")
    editor = page.get_by_role("dialog").get_by_role("textbox", name="Edit /src/price.py")
    await expect(editor).to_be_visible()
    for key in ("ControlOrMeta+End", "ArrowUp", "Shift+End"):
        await editor.press(key)
    await page.keyboard.type(GOOD)
    await axe(page)
    await page.get_by_role("dialog").get_by_role("button", name="Save").click()
    await expect(file.get_by_text("edited by you")).to_be_visible()
    await expect(file.get_by_text(BAD.strip())).to_have_count(0)
    await axe(page)
    await screenshot(page, "review-edited")
    await page.get_by_role("button", name="Approve with your edits").click()
    await expect(page.get_by_role("region", name="Edited before approval")).to_contain_text("edited 1 file")
    await expect(page.get_by_role("region", name="Edited before approval")).to_contain_text(BAD.strip())

    await page.goto(f"/w/{workspace.id}/chat/{session}")
    await expect(page.get_by_text("Your version is better.")).to_be_visible()
    assert workspace.result("read", path="/src/price.py")["content"] == changed(1)
    assert "edited this change before approving it" in str(model.last.body)


@pytest.mark.req("UI-2", part="one set of changes, per file and hunk")
async def test_a_diff_of_ten_thousand_lines_never_holds_the_page(
    workspace_page: Page, workspace: Workspace, model: ModelServer, browser: Browser
) -> None:
    page = workspace_page
    session = changed_files(workspace, model, files=1, bad=0)
    hunk = {"id": "long", "diff": long_diff(LONG), "added": LONG, "removed": LONG, "author": "agent"}

    async def with_long_diff(route: Route) -> None:
        response = await route.fetch()
        review = await response.json()
        for file in review["files"]:
            file["hunks"] = [hunk]
        await route.fulfill(response=response, json=review)

    await page.route("**/review", with_long_diff)
    await page.goto(f"/w/{workspace.id}/chat/{session}")
    link = page.get_by_role("link", name="Review changes")
    await expect(page.get_by_text("The rate is 21")).to_be_visible()
    await expect(link).to_be_visible()

    await browser.start_tracing(page=page, categories=["disabled-by-default-devtools.timeline"])
    await link.click()
    file = page.get_by_role("article", name=path_of(0))
    await expect(file.locator("mark").first).to_be_visible()
    await expect(file.locator(".syntax-number").first).to_be_visible()
    area = page.get_by_role("region", name="Changes", exact=True)
    for layout in ("split", "unified"):
        await page.get_by_role("button", name=layout, exact=True).click()
        for part in (0.2, 0.5, 0.8):
            await area.evaluate("(area, part) => { area.scrollTop = area.scrollHeight * part }", part)
            await page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    last = file.get_by_text(f"x{LONG - 1} = g({LONG - 1}, ")
    await area.evaluate("area => { area.scrollTop = area.scrollHeight }")
    await expect(last).to_have_count(1)
    trace = json.loads(await browser.stop_tracing())["traceEvents"]

    tasks = list(times_of_tasks(trace))
    assert len(tasks) > 100, "the trace has the tasks of the page"
    assert max(tasks) <= LONGEST_TASK, sorted(tasks)[-5:]
    rendered = await file.locator("[data-line]").count()
    assert rendered < LONG / 5, "only lines near the visible part are rendered"


def times_of_tasks(trace: list[dict[str, Any]]) -> Iterator[float]:
    """Return how long each task of the page had the processor, in milliseconds.

    A busy machine makes a task take longer, but not this. What the test itself asks of the page does not count.
    """
    page = {(one["pid"], one["tid"]) for one in trace if one.get("args", {}).get("name") == "CrRendererMain"}
    asked = sorted(one["ts"] for one in trace if one["name"] == "DevToolsSession::DispatchProtocolCommand")
    for task in trace:
        if task["name"] == "RunTask" and "tdur" in task and (task["pid"], task["tid"]) in page:
            first = bisect_left(asked, task["ts"])
            if first == len(asked) or asked[first] > task["ts"] + task["dur"]:
                yield task["tdur"] / 1_000
