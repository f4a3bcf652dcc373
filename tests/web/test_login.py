"""Registration, login, workspaces and logout."""

import re
from pathlib import Path
from uuid import UUID

import httpx2
from playwright.async_api import Browser, Page, expect

from tests.acceptance.serving import Serving
from tests.acceptance.workspace import PASSWORD, Someone
from tests.databases import migrated_database, urls_of
from tests.faults.server import Server
from tests.web.conftest import Axe, Screenshot
from toolcrib.api.access_tokens import LoginLinks
from toolcrib.core.ids import UserId


async def test_a_new_user_registers_creates_a_workspace_and_logs_out(
    page: Page, axe: Axe, screenshot: Screenshot
) -> None:
    await page.goto("/")
    await expect(page.get_by_role("heading", name="Log in to Toolcrib")).to_be_visible()
    await axe(page)
    await screenshot(page, "login")

    await page.get_by_role("button", name="Create an account").click()
    await page.get_by_label("Your name").fill("Lin")
    await page.get_by_label("Email address").fill("lin@example.com")
    await page.get_by_label("Password").fill(PASSWORD)
    await page.get_by_role("button", name="Create account").click()
    await expect(page.get_by_text("No workspaces yet")).to_be_visible()
    await axe(page)

    await page.get_by_label("New workspace name").fill("website")
    await page.get_by_role("button", name="Create").click()
    await expect(page.get_by_role("link", name="Workspace website")).to_be_visible()
    await expect(page).to_have_title("First steps · website · Toolcrib")

    await page.get_by_role("button", name="Account and appearance").click()
    await page.get_by_role("menuitem", name="Log out").click()
    await expect(page.get_by_role("heading", name="Log in to Toolcrib")).to_be_visible()


async def test_a_link_logs_in_once_and_does_not_stay_in_the_address(
    page: Page, ada: Someone, server: Serving, http: httpx2.Client
) -> None:
    known = http.get("/auth/me", headers={"Authorization": f"Bearer {ada.token}"}).json()
    secret = LoginLinks(server.jwt_secret, node=server.node).issue(UserId(UUID(known["id"])), 0)

    await page.goto(f"/#login={secret}")
    await expect(page.get_by_role("button", name="Account and appearance")).to_be_visible()
    assert secret not in page.url
    await page.reload()
    await expect(page.get_by_role("button", name="Account and appearance")).to_be_visible()

    await page.context.clear_cookies()
    await page.goto("about:blank")
    await page.goto(f"/#login={secret}")
    await expect(page.get_by_role("alert")).to_contain_text("was already used")
    await expect(page.get_by_role("heading", name="Log in to Toolcrib")).to_be_visible()


async def test_a_wrong_password_shows_an_error(page: Page) -> None:
    await page.goto("/")
    await page.get_by_label("Email address").fill("nobody@example.com")
    await page.get_by_label("Password").fill("not this one, surely")
    await page.get_by_role("button", name="Log in", exact=True).click()
    await expect(page.get_by_role("alert")).to_contain_text("Wrong email address or password.")


async def test_with_registration_closed_the_setup_link_creates_the_first_account(
    browser: Browser, tmp_path: Path, axe: Axe
) -> None:
    with migrated_database() as name, Server(tmp_path, urls_of(name)) as closed:
        del closed.environment["TOOLCRIB_OPEN_REGISTRATION"]
        closed.environment["TOOLCRIB_SECURE_COOKIES"] = "false"
        closed.start()
        (link,) = re.findall(r"http://\S+/#setup=\S+", closed.logged())
        page = await browser.new_page()
        await page.goto(closed.origin)
        await expect(page.get_by_text("Registration is closed.")).to_be_visible()
        await expect(page.get_by_role("button", name="Create an account")).to_have_count(0)

        await page.goto("about:blank")
        await page.goto(link)
        await expect(page.get_by_text("Create the first one.")).to_be_visible()
        await axe(page)
        assert "setup" not in page.url
        await page.get_by_label("Email address").fill("ada@example.com")
        await page.get_by_label("Password").fill(PASSWORD)
        await page.get_by_role("button", name="Create account").click()
        await expect(page.get_by_text("No workspaces yet")).to_be_visible()
        await page.close()
