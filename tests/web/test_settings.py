"""Settings: members, agents, saved approvals, MCP servers, models, API keys, usage and status."""

import re

import pytest
from playwright.async_api import Browser, Page, expect

from tests.acceptance.pending_approvals import decide
from tests.acceptance.serving import Serving
from tests.acceptance.workspace import Someone, Workspace
from tests.fakes.model_server import KEY, ModelServer
from tests.integration.api.accounts import new_email
from tests.web.conftest import Axe, Screenshot, log_in

WRITER = "trust: guided\ntool_permissions:\n  read: {allowed: true}\n  write: {allowed: true, paths: [docs/**]}\n"


async def test_an_owner_adds_a_member_changes_the_role_and_removes_them(
    workspace_page: Page, workspace: Workspace, grace: Someone, axe: Axe, screenshot: Screenshot
) -> None:
    page = workspace_page
    await page.goto(f"/w/{workspace.id}/settings")
    await expect(page.get_by_role("heading", name="Members")).to_be_visible()
    await page.get_by_label("Email address", exact=True).fill(grace.email)
    await page.get_by_role("button", name="Add", exact=True).click()
    role = page.get_by_label(f"Role of {grace.email}")
    await expect(role).to_have_value("member")
    await axe(page)
    await screenshot(page, "settings-members")

    await role.select_option("viewer")
    await expect(role).to_have_value("viewer")
    assert {one["email"]: one["role"] for one in workspace.get("/members").json()["items"]}[grace.email] == "viewer"

    await page.get_by_role("button", name=f"Remove {grace.email}").click()
    await page.get_by_role("dialog").get_by_role("button", name=f"Remove {grace.email}").click()
    await expect(role).not_to_be_visible()


async def test_a_person_without_an_account_joins_with_an_invitation_link(
    workspace_page: Page, workspace: Workspace, browser: Browser, axe: Axe
) -> None:
    page, email = workspace_page, new_email()
    await page.goto(f"/w/{workspace.id}/settings/members")
    await page.get_by_label("Email address to invite").fill(email)
    await page.get_by_label("Invited as").select_option("viewer")
    await page.get_by_role("button", name="Invite", exact=True).click()
    await expect(page.get_by_role("region", name="Pending invitations").get_by_text(email, exact=True)).to_be_visible()
    link = await page.locator("code", has_text="#invitation=").inner_text()
    await axe(page)

    guest = await browser.new_page()
    await guest.goto(link)
    await expect(guest.get_by_role("heading", name="You are invited to Toolcrib")).to_be_visible()
    assert "invitation" not in guest.url
    await axe(guest)
    await guest.get_by_label("Your name").fill("Barbara Liskov")
    await guest.get_by_label("Password").fill("a phrase that is long enough")
    await guest.get_by_role("button", name="Create account").click()
    await expect(guest.get_by_text("viewer")).to_be_visible()
    await guest.close()

    await page.reload()
    await expect(page.get_by_text("Barbara Liskov", exact=True)).to_be_visible()
    await expect(page.get_by_role("region", name="Pending invitations")).to_have_count(0)


@pytest.mark.long
async def test_a_person_selects_the_phase_of_a_session(workspace_page: Page, workspace: Workspace) -> None:
    phases = "[{name: design, tool_permissions: {}}, {name: build, tool_permissions: {}}]"
    agent = workspace.post("/agents", {"name": "phased", "definition": f"phases: {phases}"}).json()["id"]
    session = workspace.post("/sessions", {"agent_id": agent}).json()["id"]
    page = workspace_page
    await page.goto(f"/w/{workspace.id}/chat/{session}")
    await expect(page.get_by_label("Phase")).to_have_value("design")
    await page.get_by_label("Phase").select_option("build")
    await expect(page.get_by_label("Phase")).to_have_value("build")
    await page.reload()
    await expect(page.get_by_label("Phase")).to_have_value("build")


async def test_a_member_who_is_not_an_owner_sees_settings_without_buttons(
    page: Page, workspace: Workspace, grace: Someone, server: Serving
) -> None:
    workspace.admit(grace, "member")
    await log_in(page, grace, server)
    await page.goto(f"/w/{workspace.id}/settings/members")
    await expect(page.get_by_text("Only owners can add members")).to_be_visible()
    await expect(page.get_by_label("Email address")).to_have_count(0)
    await page.goto(f"/w/{workspace.id}/settings/agents")
    await expect(page.get_by_text("An owner can add one.")).to_be_visible()
    await expect(page.get_by_role("button", name="Add agent")).to_have_count(0)


async def test_an_owner_adds_an_agent_fixes_its_definition_and_tests_a_call(
    workspace_page: Page, workspace: Workspace, axe: Axe, screenshot: Screenshot
) -> None:
    page = workspace_page
    await page.goto(f"/w/{workspace.id}/settings/agents")
    await page.get_by_role("button", name="Add agent").click()
    form = page.get_by_role("dialog", name="Add agent")
    await form.get_by_label("Name").fill("writer")
    await form.get_by_role("button", name="YAML").click()
    await form.get_by_label("Definition (YAML)").fill("trust: reckless\n")
    await form.get_by_role("button", name="Add", exact=True).click()
    await expect(form.get_by_role("alert")).to_contain_text("trust")
    await form.get_by_label("Definition (YAML)").fill(WRITER)
    await form.get_by_role("button", name="Form").click()
    await expect(form.get_by_label("Only these paths")).to_have_value("docs/**")
    await form.get_by_role("button", name="Add", exact=True).click()
    await expect(page.get_by_role("heading", name="writer")).to_be_visible()
    await expect(page.get_by_text("write: docs/**")).to_be_visible()

    await page.get_by_role("button", name="Explain").click()
    await expect(page.get_by_role("status").get_by_text("Its effect needs approval", exact=True)).to_be_visible()
    [agent] = [one["id"] for one in workspace.get("/agents").json()["items"] if one["name"] == "writer"]
    workspace.post("/sessions", {"agent_id": agent, "title": "Planning", "mode": "plan"})
    await page.reload()
    await page.get_by_label("Session").select_option("Planning")
    await page.get_by_role("button", name="Explain").click()
    await expect(page.get_by_role("status").get_by_text("session.mode", exact=True)).to_be_visible()
    await page.get_by_label("Session").select_option("None")
    await page.get_by_label("Arguments (JSON)").fill('{"path": "/src/main.py", "content": "x"}')
    await page.get_by_role("button", name="Explain").click()
    await expect(page.get_by_role("status").get_by_text("Denied", exact=True)).to_be_visible()
    await axe(page)
    await screenshot(page, "settings-agents")

    await page.get_by_role("button", name="Create key for writer").click()
    dialog = page.get_by_role("dialog", name="API key for writer")
    await dialog.get_by_label("Name").fill("nightly")
    await dialog.get_by_role("button", name="Create key").click()
    key = await dialog.get_by_role("region", name="New key").inner_text()
    assert workspace.seen_with(key).call("write", path="/src/x.py", content="").status_code == 403

    await page.goto(f"/w/{workspace.id}/settings/keys")
    await expect(page.get_by_role("cell", name="agent writer")).to_be_visible()
    await page.get_by_role("button", name="Revoke nightly").click()
    await page.get_by_role("dialog").get_by_role("button", name="Revoke nightly").click()
    # The person may have other keys.
    await expect(page.get_by_role("cell", name="agent writer")).to_have_count(0)
    assert workspace.seen_with(key).call("ls").status_code == 401


@pytest.mark.long
async def test_the_form_of_an_agent_explains_what_is_chosen_before_it_is_saved(
    workspace_page: Page, workspace: Workspace, axe: Axe, screenshot: Screenshot
) -> None:
    page = workspace_page
    assert workspace.post("/agents", {"name": "writer", "definition": WRITER}).status_code == 201
    await page.goto(f"/w/{workspace.id}/settings/agents")
    await page.get_by_role("button", name="Edit writer").click()
    form = page.get_by_role("dialog", name="Edit writer")
    meaning = form.get_by_role("region", name="What these settings mean")
    runs, asks, denied = (
        meaning.get_by_role("list", name=name) for name in ("Runs without asking", "Asks a person", "Is denied")
    )
    await expect(runs).to_contain_text("Read /README.md")
    await expect(asks).to_contain_text("Write /docs/example.md")
    await expect(denied).to_contain_text("Write /elsewhere/example.txt")
    await expect(denied).to_contain_text("Run make test")

    await form.get_by_label("Only these paths").fill("src/**/*.py")
    await form.get_by_label("Run commands").check()
    await form.get_by_label("Hosts that commands may contact").fill("pypi.org")
    await form.get_by_label("Trust").select_option("review")
    await expect(runs).to_contain_text("Write /src/some/example.py")
    await expect(runs).to_contain_text("Run make test")
    await expect(runs).to_contain_text("Run a command that contacts pypi.org")
    await expect(asks).to_contain_text("Run a command that contacts example.org")
    await meaning.scroll_into_view_if_needed()
    await axe(page)
    await screenshot(page, "settings-agent-explained")
    # Nothing was saved.
    [agent] = workspace.get("/agents").json()["items"]
    assert agent["definition"] == WRITER


async def test_a_saved_approval_is_listed_and_revoked(
    workspace_page: Page, workspace: Workspace, screenshot: Screenshot
) -> None:
    page = workspace_page
    agent = workspace.agent(WRITER)
    approval = agent.post("/tools", {"tool": "write", "args": {"path": "/docs/a.md", "content": "a"}}).json()
    rule = {"tools": ["write"], "paths": ["docs/**"]}
    decided = decide(workspace, approval["result"]["pause_id"], scope="always", rule=rule)
    assert decided.status_code == 200, decided.text

    await page.goto(f"/w/{workspace.id}/settings/permissions")
    await expect(page.get_by_role("cell", name="docs/**")).to_be_visible()
    await expect(page.get_by_text("always", exact=True)).to_be_visible()
    await screenshot(page, "settings-saved-approvals")
    await page.get_by_role("button", name="Revoke write").click()
    await page.get_by_role("dialog").get_by_role("button", name="Revoke write").click()
    await expect(page.get_by_text("No saved approvals yet")).to_be_visible()


@pytest.mark.long
async def test_a_provider_key_is_saved_and_removed(
    workspace_page: Page, workspace: Workspace, model: ModelServer, screenshot: Screenshot
) -> None:
    page = workspace_page
    await page.goto(f"/w/{workspace.id}/settings/models")
    await page.get_by_label("API key for openai-compatible").fill(KEY)
    await page.get_by_label("Base URL for openai-compatible (optional)").fill(f"{model.url}/v1")
    card = page.locator("section").filter(has=page.get_by_role("heading", name="openai-compatible"))
    # The tests share a person, who may have saved a key in another one.
    await card.get_by_role("button", name=re.compile("^(Save|Replace)$")).click()
    await card.get_by_role("button", name="List models of openai-compatible").click()
    await expect(card.get_by_role("table").get_by_role("row")).not_to_have_count(0)
    await screenshot(page, "settings-models")
    await card.get_by_role("button", name="Remove key for openai-compatible").click()
    await page.get_by_role("dialog").get_by_role("button", name="Remove key for openai-compatible").click()
    await expect(card.get_by_text("not configured")).to_be_visible()


@pytest.mark.long
async def test_an_mcp_server_that_does_not_start_is_shown_as_not_responding(
    workspace_page: Page, workspace: Workspace, screenshot: Screenshot
) -> None:
    page = workspace_page
    await page.goto(f"/w/{workspace.id}/settings/mcp")
    await page.get_by_role("button", name="Add server").click()
    form = page.get_by_role("dialog", name="Add MCP server")
    await form.get_by_label("Name").fill("broken")
    await form.get_by_label("Transport").select_option("stdio")
    await form.get_by_label("Command and arguments").fill("sh\n-c\nexit 3")
    await form.get_by_role("button", name="Add server").click()
    await expect(page.get_by_role("heading", name="broken")).to_be_visible()
    await expect(page.get_by_text("not responding")).to_be_visible()
    await screenshot(page, "settings-mcp")


@pytest.mark.long
async def test_an_owner_grants_a_program_secrets_hosts_and_the_workspace(
    workspace_page: Page, workspace: Workspace, axe: Axe, screenshot: Screenshot
) -> None:
    page = workspace_page
    await page.goto(f"/w/{workspace.id}/settings/mcp")
    await page.get_by_role("button", name="Add server").click()
    form = page.get_by_role("dialog", name="Add MCP server")
    await form.get_by_label("Name").fill("granted")
    await expect(form.get_by_label("Hosts")).to_have_count(0)
    await form.get_by_label("Transport").select_option("stdio")
    await form.get_by_label("Command and arguments").fill("sh\n-c\nexit 3")
    await form.get_by_label("Secret environment variables").fill("API_TOKEN=hush-0001")
    await form.get_by_label("Hosts").fill("api.example.com\n*.example.org:8443")
    await form.get_by_label("Access to the workspace").select_option("read-only")
    await axe(page)
    await screenshot(page, "settings-mcp-form")
    await form.get_by_role("button", name="Add server").click()
    await expect(page.get_by_text("Secrets: API_TOKEN")).to_be_visible()
    await expect(page.get_by_text("Hosts: api.example.com, *.example.org:8443")).to_be_visible()
    await expect(page.get_by_text("Workspace: read-only")).to_be_visible()
    await expect(page.get_by_text("hush")).to_have_count(0)


@pytest.mark.long
async def test_usage_and_isolation_are_shown(
    workspace_page: Page, workspace: Workspace, axe: Axe, screenshot: Screenshot
) -> None:
    page = workspace_page
    workspace.write("/a.txt", "one")
    await page.goto(f"/w/{workspace.id}/settings/status")
    await expect(page.get_by_text("namespaces", exact=True)).to_be_visible()
    await expect(page.get_by_role("definition").first).to_have_text("1")
    await axe(page)
    await screenshot(page, "settings-status")
