"""The palette, and what the first load costs."""

import re

from playwright.async_api import Page, Response, expect

from tests.acceptance.workspace import Workspace
from tests.web.conftest import PHONE, Axe, Screenshot

MOST_FIRST_LOAD = 250_000
# A browser fetches six at once over HTTP/1.1.
MOST_FILES = 18
# Parts that a first load must not need: the editor, diffs, the parsers of Markdown and of YAML.
HEAVY = re.compile(r"TextView|TextDiff|MarkdownRendered|AgentsSection|SettingsScreen|CommandPalette|lang-")


async def test_the_palette_goes_to_a_screen_a_session_and_a_file_and_does_an_action_by_keys_alone(
    workspace_page: Page, workspace: Workspace, axe: Axe, screenshot: Screenshot
) -> None:
    page = workspace_page
    workspace.write("/docs/handbook.md", "# Handbook\n")
    session = workspace.post("/sessions", {"title": "Rework the checkout"}).json()["id"]
    await expect(page.get_by_role("link", name="Rework the checkout")).to_be_visible()

    await page.keyboard.press("Control+k")
    palette = page.get_by_role("dialog", name="Command palette")
    await expect(palette.get_by_role("combobox")).to_be_focused()
    await expect(palette.get_by_role("option", name="Rework the checkout")).to_be_visible()
    await axe(page)
    await screenshot(page, "palette")
    await page.keyboard.type("sched")
    await expect(palette.get_by_role("option")).to_have_count(1)
    await page.keyboard.press("Enter")
    await expect(page).to_have_url(re.compile(r"/schedules$"))

    await page.keyboard.press("Control+k")
    await page.keyboard.type("checkout")
    await expect(palette.get_by_role("option", name="Rework the checkout")).to_have_attribute("aria-selected", "true")
    await page.keyboard.press("Enter")
    await expect(page).to_have_url(re.compile(f"/chat/{session}$"))

    await page.keyboard.press("Control+k")
    await page.keyboard.type("handbook")
    await expect(palette.get_by_role("option", name="/docs/handbook.md")).to_be_visible()
    await page.keyboard.press("Enter")
    await expect(page).to_have_url(re.compile(r"path=%2Fdocs%2Fhandbook\.md$"))
    await expect(page.get_by_text("# Handbook")).to_be_visible()

    await page.keyboard.press("Control+k")
    await page.keyboard.type("dark theme")
    await page.keyboard.press("Enter")
    await expect(page.locator("html")).to_have_attribute("data-theme", "dark")

    await page.set_viewport_size(PHONE)
    await page.get_by_role("button", name="Jump to…").click()
    await expect(palette).to_be_visible()
    assert await page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    await page.keyboard.press("Escape")
    await expect(palette).to_be_hidden()


async def test_the_first_load_is_small_and_heavy_parts_come_when_they_are_needed(workspace_page: Page) -> None:
    page = workspace_page
    loaded: list[Response] = []

    def note(response: Response) -> None:
        loaded.append(response)

    page.on("response", note)
    await page.reload(wait_until="networkidle")
    await expect(page.get_by_text("No sessions yet")).to_be_visible()

    scripts = [one for one in loaded if re.search(r"\.(js|css)$", one.url)]
    sizes = {one.url.rpartition("/")[2]: int(one.headers.get("content-length", "0")) for one in scripts}
    assert all(one.headers.get("content-encoding") == "gzip" for one in scripts if "/assets/" in one.url)
    assert [name for name in sizes if HEAVY.search(name)] == []
    assert 0 < sum(sizes.values()) <= MOST_FIRST_LOAD, sizes
    assert len(sizes) <= MOST_FILES, sizes
