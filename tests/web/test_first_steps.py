"""From an empty account to the first answer, without reading the documentation; and agents made by a form."""

import pytest
from playwright.async_api import Page, expect

from tests.acceptance.conftest import registered
from tests.acceptance.pending_approvals import decide
from tests.acceptance.serving import Serving
from tests.acceptance.workspace import Someone, Workspace
from tests.fakes.model_server import KEY, ModelServer
from tests.integration.api.accounts import new_email
from tests.integration.runs.conftest import says
from tests.web.conftest import PHONE, Axe, Screenshot, log_in


@pytest.fixture
def lin(server: Serving) -> Someone:
    """A person without a workspace, a key or an agent."""
    return registered(server, new_email())


async def test_a_new_person_gets_from_a_model_key_over_an_agent_to_the_first_answer(
    page: Page, lin: Someone, server: Serving, model: ModelServer, axe: Axe, screenshot: Screenshot
) -> None:
    await log_in(page, lin, server)
    await page.goto("/")
    await page.get_by_label("New workspace name").fill("shop")
    await page.get_by_role("button", name="Create").click()

    await expect(page.get_by_role("heading", name="Put an agent to work")).to_be_visible()
    await page.get_by_label("Provider").select_option("openai-compatible")
    await page.get_by_label("API key for openai-compatible").fill(KEY)
    await page.get_by_label("Base URL for openai-compatible (optional)").fill(f"{model.url}/v1")
    await axe(page)
    await screenshot(page, "first-steps")
    await page.get_by_role("button", name="Save").click()

    await expect(page.get_by_role("listitem").filter(has_text="Create an agent")).to_have_attribute(
        "aria-current", "step"
    )
    await page.get_by_label("Model").select_option("gpt-fake")
    await axe(page)
    await page.get_by_role("button", name="Create agent").click()

    await page.get_by_role("button", name="Explain a project").click()
    await axe(page)
    await page.set_viewport_size(PHONE)
    assert await page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    await screenshot(page, "first-steps-phone")
    model.say(says("", ("read", {"path": "/sample/report.py"})), says("It adds up the orders."))
    await page.get_by_role("button", name="Start").click()
    await expect(page.get_by_role("log", name="Conversation").get_by_text("It adds up the orders.")).to_be_visible()


async def test_an_owner_makes_an_agent_by_the_form_alone(
    workspace_page: Page, workspace: Workspace, axe: Axe, screenshot: Screenshot
) -> None:
    page = workspace_page
    await page.goto(f"/w/{workspace.id}/settings/agents")
    await page.get_by_role("button", name="Add agent").click()
    form = page.get_by_role("dialog", name="Add agent")
    await form.get_by_label("Name").fill("librarian")
    await form.get_by_label("Instructions").fill("You keep the documentation in order.")
    await form.get_by_label("Change files").check()
    await form.get_by_label("Only these paths").fill("docs/**, README.md")
    await form.get_by_label("Trust").select_option("guided")
    await form.get_by_label("Budget per day").fill("5")
    await axe(page)
    await screenshot(page, "settings-agent-form")
    await form.get_by_role("button", name="Add", exact=True).click()
    await expect(page.get_by_role("heading", name="librarian")).to_be_visible()

    [agent] = [one for one in workspace.get("/agents").json()["items"] if one["name"] == "librarian"]
    assert agent["rules"]["trust"] == "guided"
    assert agent["rules"]["budgets"]["day"]["max_cost"] == 5
    assert agent["rules"]["tool_permissions"]["edit"]["paths"] == ["docs/**", "README.md"]
    assert "bash" not in agent["rules"]["tool_permissions"]


async def test_a_viewer_sees_no_control_that_decides(
    page: Page, workspace: Workspace, grace: Someone, server: Serving
) -> None:
    workspace.admit(grace, "viewer")
    agent = workspace.agent("trust: supervised\ntool_permissions: {write: {allowed: true}}")
    for path in ("/a.md", "/b.md"):
        agent.post("/tools", {"tool": "write", "args": {"path": path, "content": "x"}})
    asked = agent.post("/tools", {"tool": "write", "args": {"path": "/docs/c.md", "content": "x"}}).json()["result"]
    rule = {"tools": ["write"], "paths": ["docs/**"]}
    assert decide(workspace, asked["pause_id"], scope="always", rule=rule).status_code == 200
    await log_in(page, grace, server)
    await page.goto(f"/w/{workspace.id}/settings/permissions")
    await expect(page.get_by_role("cell", name="docs/**")).to_be_visible()
    await expect(page.get_by_role("button", name="Revoke")).to_have_count(0)
    await page.goto(f"/w/{workspace.id}/approvals")
    await expect(page.get_by_text("A member or an owner decides.").first).to_be_visible()
    for name in ("Approve", "Reject", "Always"):
        await expect(page.get_by_role("button", name=name)).to_have_count(0)
    await expect(page.get_by_role("link", name="Decide several at once")).to_have_count(0)
    await page.goto(f"/w/{workspace.id}/start")
    await expect(page.get_by_text("You can read this workspace")).to_be_visible()
    await expect(page.get_by_role("button", name="Start")).to_have_count(0)
