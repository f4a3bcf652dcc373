"""The review page: the changes of a session, a run or a pending approval, as a pull request shows them."""

import asyncio
import json
from base64 import b64decode
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

import pytest
from playwright.async_api import Browser, Page, Route, expect

from tests.acceptance.workspace import Workspace
from tests.fakes.model_server import ModelServer
from tests.integration.runs.conftest import says
from tests.wait_until import TRIES
from tests.web.builders import begin, hire
from tests.web.conftest import PHONE, Axe, Screenshot
from tests.web.review_sessions import BAD, GOOD, changed, changed_files, long_diff, module, path_of, planted, unpack

FILES, PLANTED, EDITED = 60, 37, 20
MINE = '    return f"{price.gross():,.2f} {price.currency} including tax"'
# A transparent PNG.
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
# Lines that are replaced by as many others, and milliseconds.
LONG, LONGEST_TASK = 5_000, 100


async def test_a_reviewer_finds_reverts_edits_comments_and_keeps_without_leaving_the_page(
    workspace_page: Page, workspace: Workspace, model: ModelServer, axe: Axe, screenshot: Screenshot
) -> None:
    page = workspace_page
    left: list[str] = []
    session = changed_files(workspace, model, files=FILES, bad=PLANTED)
    await page.goto(f"/w/{workspace.id}/chat/{session}")
    summary = page.get_by_role("region", name="Review", exact=True)
    await expect(summary).to_contain_text("60 files changed")
    await summary.get_by_role("link", name="Review changes").click()
    page.on("framenavigated", lambda frame: left.append(frame.url))
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
    await page.keyboard.press("J")
    await expect(review.get_by_role("article").nth(1)).to_be_in_viewport()
    left.clear()

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

    # The reviewer's own change in another file is shown as theirs, beside the agent's.
    await files.get_by_role("searchbox").fill("part20")
    await files.get_by_role("button", name="part20.py").click()
    third = review.get_by_role("article", name=path_of(EDITED))
    await third.get_by_role("button", name="Edit").click()
    await edit_last_line(page, MINE)
    await axe(page)
    await page.get_by_role("dialog").get_by_role("button", name="Save").click()
    await expect(third.get_by_text("edited by you")).to_have_count(2)
    await expect(third.get_by_text(MINE.strip())).to_be_visible()
    await expect(third.get_by_role("button", name="Revert hunk")).to_have_count(1)
    await expect(page.get_by_role("status", name="Last decision")).to_contain_text(f"You edited {path_of(EDITED)}")
    await axe(page)
    await screenshot(page, "review-own-edit")

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
    told = str(model.last.body)
    assert f"reverted {path_of(PLANTED)} (1 of 2 hunks)" in told
    assert f"edited {path_of(EDITED)}" in told
    assert MINE.strip() in told

    await page.set_viewport_size({"width": 1720, "height": 900})
    await expect(commented.locator("mark").first).to_have_text("19")
    await screenshot(page, "review-split")
    await page.set_viewport_size(PHONE)
    assert await page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    await axe(page)
    await screenshot(page, "review-phone")

    # What was not viewed is named before all is kept; and keeping is taken back.
    await page.get_by_role("button", name="Keep all").click()
    asked = page.get_by_role("dialog", name="Keep files that you have not viewed?")
    await expect(asked).to_contain_text("58 of 59 files are not marked as viewed")
    await expect(asked.get_by_role("list", name="Files that are not viewed").get_by_role("listitem")).to_have_count(58)
    await axe(page)
    await asked.get_by_role("button", name="Keep 59 files").click()
    await expect(review.get_by_text("Nothing waits for a review")).to_be_visible()
    await expect(page.get_by_role("status", name="Last decision")).to_contain_text("You kept 59 files")
    assert left == []
    await page.reload()
    await page.get_by_role("button", name="Undo", exact=True).click()
    undo = page.get_by_role("dialog", name="Undo the decision")
    await expect(undo).to_contain_text("59 files will wait for a review again")
    await undo.get_by_role("button", name="Undo the decision").click()
    await expect(review.get_by_role("article")).to_have_count(59)
    await page.get_by_role("button", name="Keep all").click()
    await asked.get_by_role("button", name="Keep 59 files").click()
    await expect(review.get_by_text("Nothing waits for a review")).to_be_visible()
    rest = module(PLANTED).replace("RATE = 0.19", "RATE = 0.21")
    assert workspace.result("read", path=path_of(PLANTED))["content"] == rest
    assert workspace.result("read", path=path_of(12))["content"] == changed(12)
    assert workspace.result("read", path=path_of(13))["content"] == changed(13)
    assert workspace.result("read", path=path_of(EDITED))["content"] == changed(EDITED).replace(GOOD, MINE)
    version = newest_version(workspace, path_of(EDITED))
    assert version["author"]["kind"] == "user"
    workspace.result("undo", calls=[version["author"]["call_id"]])
    assert workspace.result("read", path=path_of(EDITED))["content"] == changed(EDITED)


async def edit_last_line(page: Page, text: str) -> None:
    """Replace the last line of the file in the open editor, by keys."""
    await expect(page.get_by_role("dialog").get_by_role("textbox", name="Edit /")).to_be_focused()
    for key in ("ControlOrMeta+End", "ArrowUp", "Shift+End"):
        await page.keyboard.press(key)
    await page.keyboard.type(text)


def newest_version(workspace: Workspace, path: str) -> dict[str, Any]:
    [entry] = [
        one for one in workspace.result("ls", path=str(PurePosixPath(path).parent))["entries"] if one["path"] == path
    ]
    return dict(workspace.result("file_versions", file_id=entry["id"], limit=1)["versions"][0])


async def test_a_reviewer_does_the_whole_task_by_keys_alone(
    workspace_page: Page, workspace: Workspace, model: ModelServer, axe: Axe, screenshot: Screenshot
) -> None:
    page, press = workspace_page, workspace_page.keyboard.press
    session = changed_files(workspace, model, files=6, bad=3)
    await expect(page.get_by_role("link", name="Raise the tax rate")).to_be_visible()
    await page.goto(f"/w/{workspace.id}/review/session/{session}")
    await expect(page.get_by_role("article")).to_have_count(6)

    # The list of keys.
    await press("?")
    keys = page.get_by_role("dialog", name="Keyboard shortcuts")
    await expect(keys.get_by_role("region", name="Review")).to_contain_text("Next change")
    await axe(page)
    await screenshot(page, "review-keys")
    await press("Escape")

    # From change to change, across files, with the focus in sight.
    for number, path in ((1, path_of(4)), (2, path_of(4)), (1, path_of(1))):
        await press("j")
        await focused_on(page, f"Change {number} of 2 in {path}")
    await press("k")
    await focused_on(page, f"Change 2 of 2 in {path_of(4)}")

    # The planted change is found, marked and reverted; the focus goes on with the next file.
    await press("/")
    await page.keyboard.type("part03")
    await press("Enter")
    await focused_on(page, f"Change 1 of 2 in {path_of(3)}")
    await press("j")
    await focused_on(page, f"Change 2 of 2 in {path_of(3)}")
    await press("r")
    bad = page.get_by_role("article", name=path_of(3))
    await expect(bad.get_by_role("button", name="Revert hunk 2")).to_have_attribute("aria-pressed", "true")
    await press("a")
    await expect(bad).to_have_count(0)
    await focused_on(page, f"Change 1 of 2 in {path_of(2)}")

    # Another change is marked, which a reload keeps, and the mark is taken back.
    await press("r")
    marked = page.get_by_role("button", name="Revert hunk 1", exact=True).and_(page.locator("[aria-pressed=true]"))
    await expect(marked).to_have_count(1)
    await page.reload()
    await expect(page.get_by_role("button", name="Keep all but marked hunks")).to_be_visible()
    # A page without a focus moves and does nothing else: what is at its top was not chosen.
    for key in ("a", "R", "r", "v", "e", "c"):
        await press(key)
    await expect(page.get_by_role("article")).to_have_count(5)
    await expect(page.get_by_role("dialog")).to_have_count(0)
    await press("/")
    await page.keyboard.type("part02")
    await press("Enter")
    await focused_on(page, f"Change 1 of 2 in {path_of(2)}")
    await expect(marked).to_have_count(1)
    # Nor does a key decide about what was scrolled out of sight: it brings that back.
    area = page.get_by_role("region", name="Changes", exact=True)
    await area.evaluate("one => one.scrollTo(0, one.scrollTop < 600 ? one.scrollHeight : 0)")
    await expect(page.get_by_role("group", name=f"Change 1 of 2 in {path_of(2)}")).not_to_be_in_viewport()
    await press("R")
    await focused_on(page, f"Change 1 of 2 in {path_of(2)}")
    await expect(page.get_by_role("article")).to_have_count(5)
    await press("r")
    await expect(marked).to_have_count(0)

    # The arrows go through the lines of the change, and back to it.
    third = page.get_by_role("article", name=path_of(2))
    for key, line in (("ArrowDown", 2), ("ArrowDown", 3), ("ArrowUp", 2)):
        await press(key)
        await expect(third.get_by_role("button", name=f"Comment on line new {line}", exact=True)).to_be_focused()
    await press("ArrowUp")
    await focused_on(page, f"Change 1 of 2 in {path_of(2)}")
    await press("ArrowDown")
    await press("c")
    await expect(third.get_by_label("Comment on line 2").last).to_be_focused()
    await page.keyboard.type("Say what the prices are for.")
    await press("ControlOrMeta+Enter")
    await focused_on(page, f"Change 1 of 2 in {path_of(2)}")

    # The file is edited, and its change commented on.
    await press("e")
    await edit_last_line(page, MINE)
    await press("ControlOrMeta+s")
    await expect(third.get_by_text(MINE.strip())).to_be_visible()
    await press("c")
    await expect(third.get_by_label("Comment on line 5").last).to_be_focused()
    await page.keyboard.type("I changed the format.")
    await press("ControlOrMeta+Enter")
    model.say(says("Good."))
    await press("s")
    await expect(third.get_by_text("sent", exact=True)).to_have_count(2)
    [message] = [one for one in messages_of(workspace, session) if "Say what" in one]
    assert f"{path_of(2)}, line 2:\n>  \n\nSay what the prices are for." in message

    # One file is viewed, one is kept, and then all that is left.
    await press("v")
    await expect(third.get_by_role("checkbox", name="Viewed")).to_be_checked()
    await focused_on(page, f"Change 1 of 2 in {path_of(5)}")
    await press("a")
    await expect(page.get_by_role("article", name=path_of(5))).to_have_count(0)
    await press("A")
    asked = page.get_by_role("dialog", name="Keep files that you have not viewed?")
    await expect(asked).to_contain_text("3 of 4 files")
    await asked.get_by_role("button", name="Keep 4 files").press("Enter")
    await expect(page.get_by_text("Nothing waits for a review")).to_be_visible()
    rest = module(3).replace("RATE = 0.19", "RATE = 0.21")
    assert workspace.result("read", path=path_of(3))["content"] == rest
    assert workspace.result("read", path=path_of(2))["content"] == changed(2).replace(GOOD, MINE)
    assert workspace.result("read", path=path_of(5))["content"] == changed(5)


async def focused_on(page: Page, name: str) -> None:
    """Wait until a change has the focus, and it can be seen that it has."""
    change = page.get_by_role("group", name=name)
    await expect(change).to_be_focused()
    await expect(change).to_be_in_viewport()
    assert await change.evaluate("one => one.matches(':focus-visible')")
    assert await change.evaluate("one => getComputedStyle(one).outlineStyle") == "solid"


async def test_a_decision_that_the_server_refuses_comes_back_and_says_why(
    workspace_page: Page, workspace: Workspace, model: ModelServer
) -> None:
    page = workspace_page
    session = changed_files(workspace, model, files=2, bad=5)
    await expect(page.get_by_role("link", name="Raise the tax rate")).to_be_visible()
    await page.goto(f"/w/{workspace.id}/review/session/{session}")
    file = page.get_by_role("article", name=path_of(0))
    await expect(file).to_be_visible()
    decided, answer = asyncio.Event(), asyncio.Event()

    async def late(route: Route) -> None:
        if route.request.method == "GET":
            return await route.continue_()
        decided.set()
        await answer.wait()
        return await route.fulfill(status=503, json={"success": False, "error": "Busy.", "code": "OVERLOADED"})

    await page.route(f"**/sessions/{session}/review", late)
    await file.get_by_role("button", name="Keep").click()
    await decided.wait()
    await expect(file).to_have_count(0)
    answer.set()
    await expect(file).to_be_visible()
    await expect(page.get_by_role("alert")).to_contain_text("busy")


async def test_all_is_kept_while_the_answer_to_a_decision_is_on_its_way(
    workspace_page: Page, workspace: Workspace, model: ModelServer
) -> None:
    page = workspace_page
    session = changed_files(workspace, model, files=3, bad=5)
    await expect(page.get_by_role("link", name="Raise the tax rate")).to_be_visible()
    await page.goto(f"/w/{workspace.id}/review/session/{session}")
    decided, answer = asyncio.Event(), asyncio.Event()

    async def late(route: Route) -> None:
        if route.request.method == "POST" and not decided.is_set():
            decided.set()
            await answer.wait()
        await route.continue_()

    await page.route(f"**/sessions/{session}/review", late)
    await page.get_by_role("article", name=path_of(0)).get_by_role("button", name="Keep").click()
    await decided.wait()
    await page.keyboard.press("A")
    await page.get_by_role("dialog").get_by_role("button", name="Keep 2 files").click()
    await expect(page.get_by_text("Nothing waits for a review")).to_be_visible()
    answer.set()
    await expect(page.get_by_role("status", name="Last decision")).to_contain_text("You kept 2 files")
    await expect(page.get_by_text("Nothing waits for a review")).to_be_visible()
    await expect(page.get_by_role("alert")).to_have_count(0)
    assert workspace.get(f"/sessions/{session}/review").json()["total"] == 0


def messages_of(workspace: Workspace, session: str) -> list[str]:
    found = workspace.get(f"/sessions/{session}/messages").json()["items"]
    return [text for one in found if one["role"] == "user" for text in [str(one["content"])]]


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

    # Keys act on what has the focus.
    await page.keyboard.press("j")
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


async def test_a_change_of_many_pages_is_loaded_marked_and_reverted_and_images_are_shown(
    workspace_page: Page, workspace: Workspace, model: ModelServer, axe: Axe
) -> None:
    page = workspace_page
    lines = [f"line {number}" for number in range(6_000)]
    after = [f"{line} changed" if number % 20 == 10 else line for number, line in enumerate(lines)]
    image = b64decode(PIXEL)
    unpack(workspace, {"/long.txt": "\n".join(lines), "/logo.png": "no image"})
    session = begin(workspace, hire(workspace, model, trust="review"), title="Change it")
    workspace.put_file("/.cache/long.txt", "\n".join(after))
    workspace.put_file("/.cache/logo.png", image)
    model.say(says("", ("bash", {"command": "cp .cache/long.txt .cache/logo.png ."})), says("Changed."))
    workspace.post(f"/sessions/{session}/messages", {"text": "Change it"})
    await expect(page.get_by_role("link", name="Change it")).to_be_visible()
    await page.goto(f"/w/{workspace.id}/review/session/{session}")
    shown = page.get_by_role("article", name="/logo.png").get_by_role("img", name="After: /logo.png")
    await expect(shown).to_be_visible()
    assert await shown.evaluate("one => one.complete && one.naturalWidth") == 1
    await axe(page)

    # A key loads the rest, and what is marked there stays marked although a reload shows the first page only.
    long = page.get_by_role("article", name="/long.txt")
    await expect(long.get_by_role("button", name="Show more lines: 1,")).to_be_visible()
    await page.keyboard.press("/")
    await page.keyboard.type("long")
    await page.keyboard.press("Enter")
    await focused_on(page, "Change 1 of 300 in /long.txt")
    await page.keyboard.press("m")
    await expect(long.get_by_role("button", name="Show more lines")).to_have_count(0)
    area = page.get_by_role("region", name="Changes", exact=True)
    await area.evaluate("one => one.scrollTo(0, one.scrollHeight)")
    await long.get_by_role("button", name="Revert hunk 300", exact=True).click()
    await page.reload()
    await expect(long.get_by_role("button", name="Show more lines: 1,")).to_be_visible()
    await expect(page.get_by_role("alert")).to_have_count(0)
    await page.get_by_role("button", name="Keep all but marked hunks").click()
    asked = page.get_by_role("dialog", name="Keep files that you have not viewed?")
    await expect(asked).to_contain_text("1 marked hunk is reverted")
    await expect(asked).to_contain_text("1,400 lines not loaded")
    await asked.get_by_role("button", name="Keep 2 files but 1 hunk").click()
    await expect(page.get_by_text("Nothing waits for a review")).to_be_visible()
    await expect(page.get_by_role("status", name="Last decision")).to_contain_text("reverted /long.txt")
    content = workspace.result("read", path="/long.txt", limit=6_000)["content"]
    assert content.split("\n") == [*after[:5_990], lines[5_990], *after[5_991:]]


@pytest.mark.long
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
    link = page.get_by_role("link", name="Review changes")
    file = page.get_by_role("article", name=path_of(0))
    area = page.get_by_role("region", name="Changes", exact=True)

    async def tasks_of_a_review() -> list[float]:
        await page.goto(f"/w/{workspace.id}/chat/{session}")
        await expect(page.get_by_text("The rate is 21")).to_be_visible()
        await expect(link).to_be_visible()
        await browser.start_tracing(page=page, categories=["disabled-by-default-devtools.timeline"])
        await link.click()
        await expect(file.locator("mark").first).to_be_visible()
        await expect(file.locator(".syntax-number").first).to_be_visible()
        for layout in ("split", "unified"):
            await page.get_by_role("button", name=layout, exact=True).click()
            for part in (0.2, 0.5, 0.8):
                await area.evaluate("(area, part) => { area.scrollTop = area.scrollHeight * part }", part)
                await page.evaluate(
                    "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
                )
        last = file.get_by_text(f"x{LONG - 1} = g({LONG - 1}, ")
        await area.evaluate("area => { area.scrollTop = area.scrollHeight }")
        await expect(last).to_have_count(1)
        return list(times_of_tasks(json.loads(await browser.stop_tracing())["traceEvents"]))

    tries: list[float] = []
    # Slow code is slow in every try.
    while len(tries) < TRIES and (not tries or min(tries) > LONGEST_TASK):
        tasks = await tasks_of_a_review()
        assert len(tasks) > 100, "the trace has the tasks of the page"
        tries.append(max(tasks))
    assert min(tries) <= LONGEST_TASK, tries
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
