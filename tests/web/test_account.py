"""Account: one's own password and logins, and the accounts of the server for its administrators."""

import httpx2
import psycopg
import pytest
from playwright.async_api import Browser, Page, expect

from tests.acceptance.serving import Serving
from tests.acceptance.workspace import PASSWORD, Someone, Workspace
from tests.integration.api.accounts import new_email
from tests.web.conftest import PHONE, Axe, Screenshot

NEW = "another long enough phrase"


async def log_in_by_form(page: Page, email: str, password: str = PASSWORD) -> None:
    await page.goto("/")
    await page.get_by_label("Email address").fill(email)
    await page.get_by_label("Password").fill(password)
    await page.get_by_role("button", name="Log in", exact=True).click()


@pytest.mark.long
async def test_person_sees_their_logins_ends_one_and_changes_the_password(
    page: Page, http: httpx2.Client, server: Serving, axe: Axe, screenshot: Screenshot
) -> None:
    person = {"email": new_email(), "password": PASSWORD}
    http.post("/auth/register", json=person)
    phone = {"User-Agent": "Mozilla/5.0 (Linux; Android 14) Chrome/120.0 Mobile"}
    elsewhere = http.post("/auth/login", json=person, headers=phone).json()
    token = {"Authorization": f"Bearer {elsewhere['access_token']}"}
    workspace = http.post("/workspaces", json={"name": "website"}, headers=token).json()["id"]
    http.cookies.clear()
    await log_in_by_form(page, person["email"])
    await expect(page.get_by_role("link", name="website owner")).to_be_visible()
    await page.goto(f"/w/{workspace}/settings/account")
    logins = page.get_by_role("region", name="Logins").get_by_role("row")
    await expect(logins).to_have_count(3)
    await expect(logins.filter(has_text="this one")).to_have_count(1)
    await axe(page)
    await screenshot(page, "settings-account")

    await page.get_by_role("button", name="Log out Chrome on Android").click()
    await page.get_by_role("dialog").get_by_role("button", name="Log out Chrome on Android").click()
    await expect(logins).to_have_count(2)
    assert http.get("/auth/me", headers=token).status_code == 401

    await page.get_by_label("Current password").fill("not this one, surely")
    await page.get_by_label("New password").fill(NEW)
    await page.get_by_role("button", name="Change password").click()
    await expect(page.get_by_role("alert")).to_contain_text("The current password is wrong.")
    await page.get_by_label("Current password").fill(PASSWORD)
    await page.get_by_role("button", name="Change password").click()
    await expect(page.get_by_text("Your password is changed.")).to_be_visible()
    await page.reload()
    await expect(page.get_by_role("heading", name="Account")).to_be_visible()
    await expect(page.get_by_role("region", name="Users")).to_have_count(0)
    assert http.post("/auth/login", json=person).status_code == 401


async def test_administrator_resets_a_password_and_disables_the_account(
    workspace_page: Page,
    workspace: Workspace,
    ada: Someone,
    http: httpx2.Client,
    server: Serving,
    browser: Browser,
    axe: Axe,
    screenshot: Screenshot,
) -> None:
    person = {"email": new_email(), "password": PASSWORD}
    http.post("/auth/register", json=person)
    make_administrator(server, ada, True)
    page = workspace_page
    await page.goto(f"/w/{workspace.id}/settings/account")
    await page.get_by_role("button", name=f"Reset password of {person['email']}").click()
    link = await page.get_by_role("region", name="Reset link").inner_text()
    await axe(page)
    await screenshot(page, "settings-users")

    guest = await browser.new_page(viewport=PHONE)
    # They are still logged in here, and open the link in this tab.
    await guest.goto(link.partition("#")[0])
    await guest.get_by_label("Email").fill(person["email"])
    await guest.get_by_label("Password").fill(PASSWORD)
    await guest.get_by_role("button", name="Log in").click()
    await expect(guest.get_by_text("No workspaces yet")).to_be_visible()
    await guest.goto(link.strip())
    await expect(guest.get_by_role("heading", name="Choose a new password")).to_be_visible()
    assert "reset" not in guest.url
    await axe(guest)
    await guest.get_by_label("New password").fill(NEW)
    await guest.get_by_role("button", name="Set password").click()
    await expect(guest.get_by_text("No workspaces yet")).to_be_visible()

    await page.get_by_role("button", name=f"Disable {person['email']}").click()
    await page.get_by_role("dialog").get_by_role("button", name=f"Disable {person['email']}").click()
    await expect(page.get_by_role("button", name=f"Enable {person['email']}")).to_be_visible()
    await guest.reload()
    await expect(guest.get_by_role("heading", name="Log in to Toolcrib")).to_be_visible()
    await guest.close()

    await page.get_by_role("button", name=f"Enable {person['email']}").click()
    await expect(page.get_by_role("button", name=f"Disable {person['email']}")).to_be_visible()
    assert http.post("/auth/login", json=person | {"password": NEW}).status_code == 200
    await page.set_viewport_size(PHONE)
    assert await page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    make_administrator(server, ada, False)


def make_administrator(server: Serving, someone: Someone, value: bool) -> None:
    with psycopg.connect(server.database_urls.owner) as owner:
        owner.execute("update toolcrib.users set is_administrator = %s where email = %s", (value, someone.email))
