"""The way in: registering, logging in, choosing a workspace, and out again."""

from uuid import UUID

import httpx2
import pytest
from playwright.async_api import Page, expect

from tests.acceptance.serving import Serving
from tests.acceptance.workspace import PASSWORD, Someone
from tests.web.conftest import Axe, Screenshot
from toolcrib.domain.ids import UserId
from toolcrib.server.login_links import LoginLinks


@pytest.mark.req("UI-1", part="registering and logging in")
async def test_someone_new_registers_founds_a_workspace_and_leaves(
    page: Page, axe: Axe, screenshot: Screenshot
) -> None:
    await page.goto("/")
    await expect(page.get_by_role("heading", name="Log in to Toolcrib")).to_be_visible()
    await axe(page)
    await screenshot(page, "login")

    await page.get_by_role("button", name="I have no account yet").click()
    await page.get_by_label("Your name").fill("Lin")
    await page.get_by_label("E-mail address").fill("lin@example.com")
    await page.get_by_label("Password").fill(PASSWORD)
    await page.get_by_role("button", name="Make the account").click()
    await expect(page.get_by_text("You belong to no workspace yet")).to_be_visible()
    await axe(page)

    await page.get_by_label("Name of a new workspace").fill("website")
    await page.get_by_role("button", name="Found it").click()
    await expect(page.get_by_role("link", name="Workspace website")).to_be_visible()
    await expect(page).to_have_title("Chat · website · Toolcrib")

    await page.get_by_role("button", name="Account and appearance").click()
    await page.get_by_role("menuitem", name="Log out").click()
    await expect(page.get_by_role("heading", name="Log in to Toolcrib")).to_be_visible()


@pytest.mark.req("UI-1", part="logging in by a link")
async def test_a_link_logs_in_once_and_does_not_stay_in_the_address(
    page: Page, ada: Someone, server: Serving, http: httpx2.Client
) -> None:
    known = http.get("/auth/me", headers={"Authorization": f"Bearer {ada.token}"}).json()
    secret = LoginLinks(server.jwt_secret).issue(UserId(UUID(known["id"])), 0)

    await page.goto(f"/#login={secret}")
    await expect(page.get_by_role("button", name="Account and appearance")).to_be_visible()
    assert secret not in page.url
    await page.reload()
    await expect(page.get_by_role("button", name="Account and appearance")).to_be_visible()

    await page.context.clear_cookies()
    await page.goto("about:blank")
    await page.goto(f"/#login={secret}")
    await expect(page.get_by_role("alert")).to_contain_text("was used already")
    await expect(page.get_by_role("heading", name="Log in to Toolcrib")).to_be_visible()


@pytest.mark.req("UI-1", part="registering and logging in")
async def test_a_wrong_password_is_said_to_be_wrong(page: Page) -> None:
    await page.goto("/")
    await page.get_by_label("E-mail address").fill("nobody@example.com")
    await page.get_by_label("Password").fill("not this one, surely")
    await page.get_by_role("button", name="Log in", exact=True).click()
    await expect(page.get_by_role("alert")).to_contain_text("E-mail address or password is wrong.")
