"""The login of a browser: shared by its tabs, renewed in time, and explained where it cannot work."""

import asyncio
from pathlib import Path

import pytest
from playwright.async_api import Browser, Locator, Page, async_playwright, expect

from tests.acceptance.serving import Serving, serving
from tests.acceptance.workspace import PASSWORD, Someone
from tests.databases import migrated_database, urls_of
from tests.web.conftest import CHROMIUM, FLAGS, Axe


@pytest.mark.parametrize("trials", [3, pytest.param(10, marks=pytest.mark.long)])
@pytest.mark.parametrize("locks", ["with web locks", "over plain HTTP"])
async def test_two_tabs_never_lose_the_login_when_its_access_token_has_expired(
    browser: Browser, server: Serving, ada: Someone, locks: str, trials: int
) -> None:
    context = await browser.new_context(base_url=server.origin)
    if locks == "over plain HTTP":
        await context.add_init_script("delete Navigator.prototype.locks")
    one, other = await context.new_page(), await context.new_page()
    await _log_in_with_password(one, ada)
    await other.goto("/")
    await expect(_account(other)).to_be_visible()

    for trial in range(trials):
        await context.clear_cookies(name="access_token")
        # A tab that is reloaded while it renews the login gets the next cookie, too.
        await asyncio.gather(one.reload(wait_until="commit"), other.reload(wait_until="commit"))
        if trial % 2 == 1:
            await one.reload()
        await asyncio.gather(expect(_account(one)).to_be_visible(), expect(_account(other)).to_be_visible())
    await context.close()


async def test_a_logout_in_one_tab_logs_out_the_other_and_a_login_logs_it_in(
    browser: Browser, server: Serving, ada: Someone
) -> None:
    context = await browser.new_context(base_url=server.origin)
    one, other = await context.new_page(), await context.new_page()
    await other.goto("/")
    await _log_in_with_password(one, ada)
    await expect(_account(other)).to_be_visible()

    await _account(one).click()
    await one.get_by_role("menuitem", name="Log out").click()
    await expect(other.get_by_role("heading", name="Log in to Toolcrib")).to_be_visible()
    await context.close()


@pytest.mark.long
async def test_the_login_page_says_why_it_cannot_work_over_plain_http(tmp_path: Path, axe: Axe) -> None:
    hosts = {"TOOLCRIB_ALLOWED_HOSTS": "127.0.0.1,crib.test"}
    flags = [*FLAGS, "--host-resolver-rules=MAP crib.test 127.0.0.1"]
    with migrated_database() as name, serving(tmp_path, urls_of(name), hosts) as server:
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=flags)
            page = await browser.new_page()
            await page.goto(server.origin.replace("127.0.0.1", "crib.test"))
            await expect(page.get_by_role("alert")).to_contain_text("TOOLCRIB_SECURE_COOKIES=false")
            await axe(page)

            await page.goto(server.origin)
            await expect(page.get_by_role("heading", name="Log in to Toolcrib")).to_be_visible()
            await expect(page.get_by_role("alert")).to_have_count(0)
            await browser.close()


async def _log_in_with_password(page: Page, someone: Someone) -> None:
    await page.goto("/")
    await page.get_by_label("Email address").fill(someone.email)
    await page.get_by_label("Password").fill(PASSWORD)
    await page.get_by_role("button", name="Log in", exact=True).click()
    await expect(_account(page)).to_be_visible()


def _account(page: Page) -> Locator:
    return page.get_by_role("button", name="Account and appearance")
