"""The Files screen: the tree, reading and writing, the past of a file, search, and what was deleted."""

import pytest
from playwright.async_api import Page, expect

from tests.acceptance.workspace import Workspace
from tests.web.conftest import PHONE, Axe, Screenshot

PYTHON = '"""Greets."""\n\n\ndef greet(name: str) -> str:\n    # Politely.\n    return f"Hello, {name}!"\n'


@pytest.fixture
def furnished(workspace: Workspace) -> Workspace:
    """Some files that the history knows, one that it does not, and one that is gone."""
    workspace.write("/docs/guide.md", "# Guide\n\nRead *this* first.\n")
    workspace.write("/src/greet.py", PYTHON)
    workspace.write("/src/greet_test.py", "from greet import greet\n")
    workspace.write("/notes.md", "one\n")
    workspace.result("write", path="/notes.md", content="one\ntwo\n", overwrite=True)
    workspace.place("/build/out.log", "made by another program\n")
    workspace.write("/gone.md", "still here\n")
    workspace.result("rm", path="/gone.md")
    return workspace


@pytest.fixture
async def files(workspace_page: Page, furnished: Workspace) -> Page:
    await workspace_page.goto(f"/w/{furnished.id}/files")
    await expect(workspace_page.get_by_role("treeitem", name="notes.md")).to_be_visible()
    return workspace_page


@pytest.mark.req("UI-1", part="files")
async def test_the_tree_opens_by_keyboard_and_tells_what_the_history_knows(
    files: Page, axe: Axe, screenshot: Screenshot
) -> None:
    await expect(files.get_by_role("treeitem", name="build, folder, only on disk")).to_be_visible()
    await files.get_by_role("treeitem", name="build").focus()
    await files.keyboard.press("ArrowRight")
    await expect(files.get_by_role("treeitem", name="out.log, only on disk")).to_be_visible()
    for key in ("ArrowLeft", "ArrowDown", "ArrowDown", "ArrowRight"):
        await files.keyboard.press(key)
    await expect(files.get_by_role("treeitem", name="greet.py")).to_be_visible()
    await expect(files.get_by_role("treeitem", name="out.log")).to_be_hidden()
    await files.keyboard.press("ArrowDown")
    await files.keyboard.press("Enter")

    await expect(files.get_by_role("heading", name="/src/greet.py")).to_be_visible()
    await expect(files.get_by_label("Content of /src/greet.py")).to_contain_text("def greet")
    await axe(files)
    await screenshot(files, "files")


@pytest.mark.req("UI-1", part="files")
async def test_a_file_is_made_written_and_its_history_brings_an_older_version_back(
    files: Page, furnished: Workspace, axe: Axe, screenshot: Screenshot
) -> None:
    await files.get_by_role("button", name="New file or folder").click()
    await files.get_by_label("Path").fill("/ideas.md")
    await files.get_by_role("button", name="Make it").click()
    await files.get_by_role("button", name="Edit").click()
    await files.get_by_label("Edit /ideas.md").click()
    await files.keyboard.type("first")
    await expect(files.get_by_text("Not saved yet")).to_be_visible()
    await files.keyboard.press("Control+s")
    await files.get_by_role("button", name="Edit").click()
    await files.get_by_label("Edit /ideas.md").click()
    await files.keyboard.press("Control+End")
    await files.keyboard.type(" and second")
    await files.get_by_role("button", name="Save").click()
    await expect(files.get_by_role("button", name="Edit", exact=True)).to_be_visible()
    assert furnished.on_disk("/ideas.md").read_text() == "first and second"

    await files.get_by_role("button", name="History").click()
    await expect(files.get_by_role("heading", name="What version 3 changed")).to_be_visible()
    await expect(files.get_by_text("first and second")).to_be_visible()
    await axe(files)
    await screenshot(files, "file-history")
    await files.get_by_role("button", name="Version 2").click()
    await files.get_by_role("button", name="Bring this version back").click()
    await files.get_by_role("button", name="Bring it back").click()
    await expect(files.get_by_role("button", name="Version 4 now")).to_be_visible()
    assert furnished.on_disk("/ideas.md").read_text() == "first"


@pytest.mark.req("UI-1", part="files")
async def test_what_another_wrote_meanwhile_is_shown_beside_ones_own_and_not_overwritten(
    files: Page, furnished: Workspace, axe: Axe, screenshot: Screenshot
) -> None:
    await files.get_by_role("treeitem", name="notes.md").click()
    await files.get_by_role("button", name="Edit").click()
    await files.get_by_label("Edit /notes.md").click()
    await files.keyboard.type("mine ")
    await files.get_by_role("treeitem", name="docs").press("ArrowRight")
    await files.get_by_role("treeitem", name="guide.md").click()
    furnished.place("/notes.md", "theirs\n")
    await files.get_by_role("treeitem", name="notes.md").click()
    await expect(files.get_by_label("Edit /notes.md")).to_contain_text("mine")

    await files.get_by_role("button", name="Save", exact=True).click()

    await expect(files.get_by_role("alert")).to_contain_text("changed since")
    await expect(files.get_by_role("region", name="What others wrote meanwhile")).to_contain_text("theirs")
    assert furnished.on_disk("/notes.md").read_text() == "theirs\n"
    await axe(files)
    await screenshot(files, "file-overtaken")
    await files.get_by_role("button", name="Save mine over it").click()
    await expect(files.get_by_role("button", name="Edit")).to_be_visible()
    assert "mine" in furnished.on_disk("/notes.md").read_text()


@pytest.mark.req("UI-1", part="files")
async def test_search_finds_by_content_and_by_name_and_leads_to_the_line(
    files: Page, axe: Axe, screenshot: Screenshot
) -> None:
    await files.get_by_role("button", name="Search").first.click()
    await files.get_by_label("Search for").fill("def gr.*t")
    await files.keyboard.press("Enter")
    await files.get_by_role("button", name="4 def greet(name: str) -> str:").click()
    await expect(files.locator(".cm-target")).to_contain_text("def greet")
    await axe(files)
    await screenshot(files, "file-search")

    await files.get_by_label("Where").select_option("names")
    await files.get_by_label("Search for").fill("test")
    await files.keyboard.press("Enter")
    await files.get_by_role("button", name="/src/greet_test.py").click()
    await expect(files.get_by_role("heading", name="/src/greet_test.py")).to_be_visible()


@pytest.mark.req("UI-1", part="files")
async def test_on_a_phone_a_file_is_deleted_and_brought_back(
    files: Page, furnished: Workspace, axe: Axe, screenshot: Screenshot
) -> None:
    await files.set_viewport_size(PHONE)
    await files.get_by_role("treeitem", name="notes.md").click()
    await expect(files.get_by_role("tree")).to_be_hidden()
    await expect(files.get_by_label("Content of /notes.md")).to_contain_text("two")
    await screenshot(files, "file-phone")
    await files.get_by_role("button", name="Delete").click()
    await files.get_by_role("dialog").get_by_role("button", name="Delete").click()
    await expect(files.get_by_role("tree")).to_be_visible()
    assert not furnished.on_disk("/notes.md").exists()

    await files.get_by_role("button", name="Deleted").click()
    await axe(files)
    await files.get_by_role("button", name="Restore /notes.md").click()
    await expect(files.get_by_role("heading", name="/notes.md")).to_be_visible()
    assert furnished.on_disk("/notes.md").read_text() == "one\ntwo\n"
    assert await files.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
