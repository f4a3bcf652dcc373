"""Administration: members, agents and their rules, standing answers, MCP servers, models, keys, usage and health."""

import pytest
from playwright.async_api import Page, expect

from tests.acceptance.serving import Serving
from tests.acceptance.workspace import Someone, Workspace
from tests.fakes.model_server import KEY, ModelServer
from tests.web.conftest import PHONE, Axe, Screenshot, log_in

SECTIONS = ["members", "agents", "rules", "mcp", "models", "keys", "health"]
WRITER = "trust: guided\ntool_permissions:\n  read: {allowed: true}\n  write: {allowed: true, paths: [docs/**]}\n"


@pytest.mark.req("UI-1", part="members")
async def test_an_owner_takes_someone_in_gives_a_role_and_removes_them(
    workspace_page: Page, workspace: Workspace, grace: Someone, axe: Axe, screenshot: Screenshot
) -> None:
    page = workspace_page
    await page.goto(f"/w/{workspace.id}/admin")
    await expect(page.get_by_role("heading", name="Members")).to_be_visible()
    await page.get_by_label("Their e-mail address").fill(grace.email)
    await page.get_by_role("button", name="Take in").click()
    role = page.get_by_label(f"Role of {grace.email}")
    await expect(role).to_have_value("member")
    await axe(page)
    await screenshot(page, "admin-members")

    await role.select_option("viewer")
    await expect(role).to_have_value("viewer")
    assert {one["email"]: one["role"] for one in workspace.get("/members").json()["items"]}[grace.email] == "viewer"

    await page.get_by_role("button", name=f"Remove {grace.email}").click()
    await page.get_by_role("dialog").get_by_role("button", name=f"Remove {grace.email}").click()
    await expect(role).not_to_be_visible()


@pytest.mark.req("UI-1", part="members")
async def test_who_is_no_owner_sees_how_things_stand_and_no_buttons(
    page: Page, workspace: Workspace, grace: Someone, server: Serving
) -> None:
    workspace.admit(grace, "member")
    await log_in(page, grace, server)
    await page.goto(f"/w/{workspace.id}/admin/members")
    await expect(page.get_by_text("Only owners take people in")).to_be_visible()
    await expect(page.get_by_label("Their e-mail address")).to_have_count(0)
    await page.goto(f"/w/{workspace.id}/admin/agents")
    await expect(page.get_by_text("An owner can add one.")).to_be_visible()
    await expect(page.get_by_role("button", name="Add an agent")).to_have_count(0)


@pytest.mark.req("UI-1", part="agents and explain")
async def test_an_agent_is_added_corrected_and_its_rules_explained(
    workspace_page: Page, workspace: Workspace, axe: Axe, screenshot: Screenshot
) -> None:
    page = workspace_page
    await page.goto(f"/w/{workspace.id}/admin/agents")
    await page.get_by_role("button", name="Add an agent").click()
    form = page.get_by_role("dialog", name="Add an agent")
    await form.get_by_label("Name").fill("writer")
    await form.get_by_label("Rules (YAML)").fill("trust: reckless\n")
    await form.get_by_role("button", name="Add", exact=True).click()
    await expect(form.get_by_role("alert")).to_contain_text("trust")
    await form.get_by_label("Rules (YAML)").fill(WRITER)
    await form.get_by_role("button", name="Add", exact=True).click()
    await expect(page.get_by_role("heading", name="writer")).to_be_visible()
    await expect(page.get_by_text("write: docs/**")).to_be_visible()

    await page.get_by_role("button", name="Explain").click()
    await expect(page.get_by_text("A person would be asked")).to_be_visible()
    await page.get_by_label("Arguments (JSON)").fill('{"path": "/src/main.py", "content": "x"}')
    await page.get_by_role("button", name="Explain").click()
    await expect(page.get_by_text("It would be refused")).to_be_visible()
    await axe(page)
    await screenshot(page, "admin-agents")

    await page.get_by_role("button", name="Make a key for writer").click()
    dialog = page.get_by_role("dialog", name="A key for writer")
    await dialog.get_by_label("What it is for").fill("nightly")
    await dialog.get_by_role("button", name="Make a key").click()
    key = await dialog.get_by_role("region", name="The new key").inner_text()
    assert workspace.seen_with(key).call("write", path="/src/x.py", content="").status_code == 403

    await page.goto(f"/w/{workspace.id}/admin/keys")
    await expect(page.get_by_role("cell", name="agent writer")).to_be_visible()
    await page.get_by_role("button", name="Revoke nightly").click()
    await page.get_by_role("dialog").get_by_role("button", name="Revoke nightly").click()
    await expect(page.get_by_text("No keys yet")).to_be_visible()
    assert workspace.seen_with(key).call("ls").status_code == 401


@pytest.mark.req("UI-1", part="standing answers")
async def test_what_was_allowed_for_good_is_shown_and_revoked(
    workspace_page: Page, workspace: Workspace, screenshot: Screenshot
) -> None:
    page = workspace_page
    agent = workspace.agent(WRITER)
    approval = agent.post("/tools", {"tool": "write", "args": {"path": "/docs/a.md", "content": "a"}}).json()
    decision = {"approved": True, "scope": "always", "rule": {"tool": "write", "paths": ["docs/**"]}}
    told = workspace.post(f"/approvals/{approval['result']['approval_id']}/decision", decision)
    assert told.status_code == 200, told.text

    await page.goto(f"/w/{workspace.id}/admin/rules")
    await expect(page.get_by_role("cell", name="docs/**")).to_be_visible()
    await expect(page.get_by_text("always", exact=True)).to_be_visible()
    await screenshot(page, "admin-rules")
    await page.get_by_role("button", name="Revoke write").click()
    await page.get_by_role("dialog").get_by_role("button", name="Revoke write").click()
    await expect(page.get_by_text("Nothing is allowed beforehand")).to_be_visible()


@pytest.mark.req("UI-1", part="model providers")
async def test_access_to_a_model_is_checked_stored_and_forgotten(
    workspace_page: Page, workspace: Workspace, model: ModelServer, screenshot: Screenshot
) -> None:
    page = workspace_page
    await page.goto(f"/w/{workspace.id}/admin/models")
    await page.get_by_label("API key of openai-compatible").fill(KEY)
    await page.get_by_label("Address of openai-compatible, if not its own").fill(f"{model.url}/v1")
    card = page.locator("section").filter(has=page.get_by_role("heading", name="openai-compatible"))
    await card.get_by_role("button", name="Check and store").click()
    await card.get_by_role("button", name="List the models of openai-compatible").click()
    await expect(card.get_by_role("table").get_by_role("row")).not_to_have_count(0)
    await screenshot(page, "admin-models")
    await card.get_by_role("button", name="Forget openai-compatible").click()
    await page.get_by_role("dialog").get_by_role("button", name="Forget openai-compatible").click()
    await expect(card.get_by_text("not set up")).to_be_visible()


@pytest.mark.req("UI-1", part="MCP servers")
async def test_an_mcp_servers_tools_are_looked_at_and_accepted(
    workspace_page: Page, workspace: Workspace, screenshot: Screenshot
) -> None:
    page = workspace_page
    await page.goto(f"/w/{workspace.id}/admin/mcp")
    await page.get_by_role("button", name="Add a server").click()
    form = page.get_by_role("dialog", name="Add an MCP server")
    await form.get_by_label("Name").fill("broken")
    await form.get_by_label("It is").select_option("stdio")
    await form.get_by_label("Program and its arguments").fill("sh\n-c\nexit 3")
    await form.get_by_role("button", name="Add and look at its tools").click()
    await expect(page.get_by_role("heading", name="broken")).to_be_visible()
    await expect(page.get_by_text("does not answer")).to_be_visible()
    await screenshot(page, "admin-mcp")


@pytest.mark.req("UI-1", part="usage and health")
async def test_usage_and_isolation_are_told(
    workspace_page: Page, workspace: Workspace, axe: Axe, screenshot: Screenshot
) -> None:
    page = workspace_page
    workspace.write("/a.txt", "one")
    await page.goto(f"/w/{workspace.id}/admin/health")
    await expect(page.get_by_text("isolated by namespaces")).to_be_visible()
    await expect(page.get_by_role("definition").first).to_have_text("1")
    await axe(page)
    await screenshot(page, "admin-health")


@pytest.mark.req("UI-1", part="works on a phone")
async def test_every_section_is_sound_at_390_pixels(workspace_page: Page, workspace: Workspace, axe: Axe) -> None:
    page = workspace_page
    await page.set_viewport_size(PHONE)
    for section in SECTIONS:
        await page.goto(f"/w/{workspace.id}/admin/{section}")
        await expect(page.get_by_role("heading", level=1)).to_be_visible()
        await expect(page.get_by_text("Loading")).to_have_count(0)
        await axe(page)
        width = await page.evaluate("document.documentElement.scrollWidth")
        assert width <= 390, f"{section} is {width} pixels wide"
