"""The inbox: what waits in all workspaces of a person, several decisions at once, and a phone."""

from collections.abc import Callable
from typing import Any

import pytest
from playwright.async_api import Browser, Page, Route, expect

from tests.acceptance.conftest import registered
from tests.acceptance.serving import Serving
from tests.acceptance.workspace import Someone, Workspace
from tests.fakes.model_server import ModelServer, plain
from tests.integration.api.accounts import new_email
from tests.integration.runs.conftest import says
from tests.web.builders import begin, hire
from tests.web.conftest import PHONE, Axe, Screenshot, log_in

ASKS = "trust: supervised\ntool_permissions: {write: {allowed: true}}"


@pytest.fixture
def lin(server: Serving) -> Someone:
    """A person for whom nothing else waits."""
    return registered(server, new_email())


async def test_several_approvals_of_two_workspaces_are_decided_at_once_each_by_its_own_hash(
    page: Page,
    lin: Someone,
    server: Serving,
    new_workspace: Callable[[Someone], Workspace],
    axe: Axe,
    screenshot: Screenshot,
) -> None:
    website, shop = new_workspace(lin), new_workspace(lin)
    await log_in(page, lin, server)
    ask(website, "/docs/a.md", "/docs/b.md")
    ask(shop, "/prices.csv")
    await page.goto("/inbox")
    approvals = page.get_by_role("region", name="Approvals")
    await expect(approvals.get_by_role("listitem")).to_have_count(3)
    await expect(page).to_have_title("(3) Inbox · Toolcrib")
    assert (await page.locator('link[rel="icon"]').get_attribute("href") or "").startswith("data:image/svg+xml")
    await approvals.get_by_role("button", name="/docs/a.md").click()
    await expect(page.get_by_role("region", name="Approval of write")).to_contain_text("/docs/a.md")
    await axe(page)
    await screenshot(page, "inbox")
    await approvals.get_by_role("button", name="/docs/a.md").click()

    # One of them changes hands meanwhile: its decision is refused, and it comes back with the reason.
    sent: list[str] = []

    async def refuse_one(route: Route) -> None:
        body: Any = route.request.post_data_json
        sent.append(str(body["arguments_sha256"]))
        if len(sent) == 1:
            refusal = '{"success": false, "error": "The call has changed.", "code": "CONFLICT"}'
            await route.fulfill(status=409, body=refusal, content_type="application/json")
        else:
            await route.continue_()

    await page.route("**/decision", refuse_one)
    await page.get_by_label("Select all").check()
    await page.get_by_role("toolbar").get_by_role("button", name="Approve").click()
    dialog = page.get_by_role("dialog")
    # Each change is shown with its lines before it is signed.
    for path in ("/docs/a.md", "/docs/b.md", "/prices.csv"):
        diff = dialog.get_by_role("region", name=f"Diff of {path}")
        await expect(diff.locator("[data-line=new]")).to_have_text("x")
    await axe(page)
    await dialog.get_by_role("button", name="Approve 3 calls").click()
    await expect(approvals.get_by_role("listitem")).to_have_count(1)
    await expect(approvals.get_by_role("alert")).to_contain_text("not decided: The call has changed.")
    assert len(set(sent)) == 3, "each decision names its own arguments"
    results = page.get_by_role("region", name="Results").get_by_role("listitem")
    await expect(results).to_have_count(3)
    await expect(results.filter(has_text="not decided: The call has changed.")).to_have_count(1)
    await expect(results.filter(has_text=": approved")).to_have_count(2)

    await page.get_by_role("checkbox").first.check()
    await page.get_by_role("toolbar").get_by_role("button", name="Reject").click()
    await page.get_by_role("dialog").get_by_role("button", name="Reject 1 call").click()
    await expect(page.get_by_text("Nothing waits for you")).to_be_visible()
    await expect(page).to_have_title("Inbox · Toolcrib")
    states = [
        pause["state"]
        for workspace in (website, shop)
        for pause in workspace.get("/paused-calls", state="all").json()["items"]
    ]
    assert sorted(states) == ["approved", "approved", "rejected"]


async def test_reviews_and_failed_runs_wait_too_and_appear_while_the_page_is_open(
    page: Page, lin: Someone, server: Serving, new_workspace: Callable[[Someone], Workspace], model: ModelServer
) -> None:
    workspace = new_workspace(lin)
    await log_in(page, lin, server)
    await page.goto("/inbox")
    agent = hire(workspace, model, name="reviewed", trust="review")
    session = begin(workspace, agent, title="Rework the docs")
    model.say(says("", ("write", {"path": "/docs/new.md", "content": "x\n"})), says("Done."))
    workspace.post(f"/sessions/{session}/messages", {"text": "Write."})
    review = page.get_by_role("region", name="Reviews").get_by_role("link", name="Rework the docs")
    await expect(review).to_be_visible()
    await review.click()
    await expect(page.get_by_role("article", name="/docs/new.md")).to_be_visible()
    await page.get_by_role("link", name="Back to the chat").click()
    await expect(page.get_by_role("log", name="Conversation")).to_be_visible()

    broken = begin(workspace, hire(workspace, model, name="limited", trust="guided"), title="Will fail")
    model.say(plain(400, {"error": {"message": "The model is gone."}}))
    workspace.post(f"/sessions/{broken}/messages", {"text": "Go."})
    await page.goto("/inbox")
    await expect(page.get_by_role("region", name="Failed runs").get_by_text("limited failed").first).to_be_visible()


@pytest.mark.long
async def test_one_thumb_reaches_the_screens_and_decides_on_a_phone(
    browser: Browser,
    server: Serving,
    lin: Someone,
    new_workspace: Callable[[Someone], Workspace],
    axe: Axe,
    screenshot: Screenshot,
) -> None:
    workspace = new_workspace(lin)
    ask(workspace, "/a.md", "/b.md")
    context = await browser.new_context(
        base_url=server.origin, viewport=PHONE, has_touch=True, is_mobile=True, reduced_motion="reduce"
    )
    page = await context.new_page()
    await log_in(page, lin, server)
    await page.goto(f"/w/{workspace.id}/chat")
    bar = page.get_by_role("navigation", name="Screens").last
    for target in [*await bar.get_by_role("link").all(), bar.get_by_role("button", name="More screens")]:
        box = await target.bounding_box()
        assert box is not None
        assert box["height"] >= 44
        assert box["y"] > PHONE["height"] / 2
    await bar.get_by_role("button", name="More screens").tap()
    await page.get_by_role("menuitem", name="Settings").tap()
    await expect(page.get_by_role("heading", name="Members")).to_be_visible()

    await page.get_by_role("link", name="Inbox 2 waiting").tap()
    await page.get_by_role("checkbox", name="Select agent").first.check()
    await screenshot(page, "inbox-phone")
    await axe(page)
    assert await page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    await page.get_by_role("toolbar").get_by_role("button", name="Approve").tap()
    await page.get_by_role("dialog").get_by_role("button", name="Approve 1 call").tap()
    await expect(page.get_by_role("region", name="Approvals").get_by_role("listitem")).to_have_count(1)
    await context.close()


def ask(workspace: Workspace, *paths: str) -> None:
    """An agent's calls that wait for an approval."""
    agent = workspace.agent(ASKS)
    for path in paths:
        asked = agent.post("/tools", {"tool": "write", "args": {"path": path, "content": "x\n"}})
        assert asked.status_code == 202, asked.text
