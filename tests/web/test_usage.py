"""Cost in the chat, and the page with usage and budgets."""

import pytest
from playwright.async_api import Page, expect

from tests.acceptance.workspace import Workspace
from tests.fakes.model_server import KEY, ModelServer
from tests.integration.runs.conftest import says
from tests.web.builders import begin, hire
from tests.web.conftest import PHONE, Axe, Screenshot

PRICED = """
provider: openai
model: gpt-4o
wire: chat_completions
context_window: 128000
budgets: {day: {max_cost: 3}, session: {max_tokens: 2000000}}
"""


def hire_priced(workspace: Workspace, model: ModelServer) -> str:
    """Create an agent whose model has a known price. Return its id."""
    given = {"secret": KEY, "base_url": f"{model.url}/v1", "check": False}
    stored = workspace.http.put("/credentials/openai", json=given, headers=workspace.headers)
    assert stored.status_code == 204, stored.text
    agent = workspace.post("/agents", {"name": "analyst", "definition": PRICED})
    assert agent.status_code == 201, agent.text
    return str(agent.json()["id"])


async def send(page: Page, workspace: Workspace, session: str, text: str) -> None:
    await page.goto(f"/w/{workspace.id}/chat/{session}")
    await page.get_by_role("textbox", name="Message").fill(text)
    await page.keyboard.press("Enter")


async def test_cost_is_shown_in_the_chat_and_by_day_agent_model_and_session(
    workspace_page: Page, workspace: Workspace, model: ModelServer, axe: Axe, screenshot: Screenshot
) -> None:
    page = workspace_page
    priced = begin(workspace, hire_priced(workspace, model), title="Quarterly report")
    unpriced = begin(workspace, hire(workspace, model), title="Local model")
    model.say(says("Here it is.", input_tokens=100_000, output_tokens=25_000))
    await send(page, workspace, priced, "Write the report.")
    await expect(page.get_by_text("Here it is.")).to_be_visible()
    # At $2.50 and $10 for a million tokens.
    await expect(page.get_by_text("Cost of the session: $0.50")).to_be_visible()
    model.say(says("Done.", input_tokens=5_000, output_tokens=100))
    await send(page, workspace, unpriced, "Hello?")
    await expect(page.get_by_text("Cost of the session: unknown price")).to_be_visible()
    await page.reload()
    await expect(page.get_by_text("Cost of the session: unknown price")).to_be_visible()

    await page.goto(f"/w/{workspace.id}/settings/usage")
    figures = page.get_by_text("130,100 tokens, 2 runs")
    await expect(figures).to_have_count(2)
    for table, name, cost in [
        ("By agent", "analyst", "$0.50"),
        ("By agent", "coder", "unknown price"),
        ("By model", "openai/gpt-4o", "$0.50"),
        ("By model", "openai-compatible/gpt-fake", "unknown price"),
        ("By session", "Quarterly report", "$0.50"),
        ("By session", "Local model", "unknown price"),
    ]:
        row = page.get_by_role("region", name=table).get_by_role("row", name=name)
        await expect(row.get_by_role("cell", name=cost, exact=True)).to_be_visible()
    await expect(page.get_by_role("region", name="By day").get_by_role("row")).to_have_count(2)
    await expect(page.get_by_text("$0.50 of $3.00")).to_be_visible()
    await axe(page)
    await screenshot(page, "settings-usage")

    await page.set_viewport_size(PHONE)
    assert await page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    await axe(page)
    await screenshot(page, "settings-usage-phone")


@pytest.mark.long
async def test_an_owner_sets_a_budget_that_stops_the_next_run_and_removes_it(
    workspace_page: Page, workspace: Workspace, model: ModelServer, axe: Axe
) -> None:
    page = workspace_page
    session = begin(workspace, hire(workspace, model))
    await page.goto(f"/w/{workspace.id}/settings/usage")
    await expect(page.get_by_text("No model was used")).to_be_visible()
    await page.get_by_label("Tokens", exact=True).fill("1000")
    await page.get_by_role("button", name="Set budget").click()
    await expect(page.get_by_text("0 tokens of 1,000 tokens")).to_be_visible()
    await expect(page.get_by_label("Tokens", exact=True)).to_have_value("1000")
    await axe(page)

    model.say(says("First.", input_tokens=2_000, output_tokens=10))
    await send(page, workspace, session, "One?")
    await expect(page.get_by_text("First.")).to_be_visible()
    await page.get_by_role("textbox", name="Message").fill("Two?")
    await page.keyboard.press("Enter")
    await expect(page.get_by_text("Stopped: this workspace has used 2,010 tokens today (UTC)")).to_be_visible()

    await page.goto(f"/w/{workspace.id}/settings/usage")
    await expect(page.get_by_text("2,010 tokens of 1,000 tokens · used up")).to_be_visible()
    remove = "Remove the workspace's budget per day"
    await page.get_by_role("button", name=remove).click()
    await page.get_by_role("dialog").get_by_role("button", name=remove).click()
    await expect(page.get_by_text("No budgets.")).to_be_visible()
    model.say(says("Second.", input_tokens=2_000, output_tokens=10))
    await send(page, workspace, session, "Two, please?")
    await expect(page.get_by_text("Second.")).to_be_visible()
