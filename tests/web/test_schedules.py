"""The screen of schedules: created, paused, resumed, sent now and removed."""

import pytest
from playwright.async_api import Page, expect

from tests.acceptance.workspace import Workspace
from tests.fakes.model_server import ModelServer
from tests.integration.runs.conftest import says
from tests.web.builders import hire
from tests.web.conftest import PHONE, Axe, Screenshot


async def test_a_schedule_is_created_paused_resumed_sent_and_removed(
    workspace_page: Page, workspace: Workspace, model: ModelServer, axe: Axe, screenshot: Screenshot
) -> None:
    page = workspace_page
    hire(workspace, model)
    await page.get_by_role("link", name="Schedules").first.click()
    await expect(page.get_by_text("No schedules yet")).to_be_visible()
    await page.get_by_role("button", name="New schedule").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Name").fill("Morning report")
    await dialog.get_by_label("Time zone").fill("Europe/Berlin")
    await dialog.get_by_label("Message").fill("Summarize what changed since yesterday.")
    await axe(page)
    await screenshot(page, "schedules-new")
    await dialog.get_by_role("button", name="Create schedule").click()

    await expect(page.get_by_role("heading", name="Morning report")).to_be_visible()
    [made] = workspace.get("/schedules").json()["items"]
    assert (made["cron"], made["time_zone"]) == ("0 9 * * mon-fri", "Europe/Berlin")
    await expect(page.get_by_text(", 09:00")).to_be_visible()
    await expect(page.get_by_text("never")).to_be_visible()

    model.say(says("Nothing changed."))
    await page.get_by_role("button", name="Run now: Morning report").click()
    await expect(page.get_by_role("link", name="Open session")).to_be_visible()
    await axe(page)
    await screenshot(page, "schedules")
    await page.set_viewport_size(PHONE)
    assert await page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    await screenshot(page, "schedules-phone")

    await page.get_by_role("button", name="Pause Morning report").click()
    await page.get_by_role("button", name="Resume Morning report").click()
    await expect(page.get_by_role("button", name="Pause Morning report")).to_be_visible()
    await page.get_by_role("button", name="Remove Morning report").click()
    await page.get_by_role("dialog").get_by_role("button", name="Remove Morning report").click()
    await expect(page.get_by_text("No schedules yet")).to_be_visible()
    assert workspace.get("/schedules").json()["items"] == []


@pytest.mark.long
async def test_a_wrong_cron_expression_is_explained(
    workspace_page: Page, workspace: Workspace, model: ModelServer
) -> None:
    page = workspace_page
    hire(workspace, model)
    await page.goto(f"/w/{workspace.id}/schedules")
    await page.get_by_role("button", name="New schedule").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Name").fill("Never")
    await dialog.get_by_label("When").select_option("other")
    await dialog.get_by_label("Cron expression").fill("0 0 31 2 *")
    await dialog.get_by_label("Message").fill("Go.")
    await dialog.get_by_role("button", name="Create schedule").click()
    await expect(dialog.get_by_role("alert")).to_contain_text("it never fires")
