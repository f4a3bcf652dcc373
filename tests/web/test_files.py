"""The Files screen: the tree, reading and editing, file history, search, and deleted files."""

import pytest
from playwright.async_api import Page, expect

from tests.acceptance.workspace import Workspace
from tests.web.conftest import PHONE, Axe, Screenshot

PYTHON = '"""Greets."""\n\n\ndef greet(name: str) -> str:\n    # Politely.\n    return f"Hello, {name}!"\n'


@pytest.fixture
def populated(workspace: Workspace) -> Workspace:
    """A workspace with tracked files, an untracked one and a deleted one."""
    workspace.write("/docs/guide.md", "# Guide\n\nRead *this* first.\n")
    workspace.write("/src/greet.py", PYTHON)
    workspace.write("/src/greet_test.py", "from greet import greet\n")
    workspace.write("/notes.md", "one\n")
    workspace.result("write", path="/notes.md", content="one\ntwo\n", overwrite=True)
    workspace.put_file("/build/out.log", "made by another program\n")
    workspace.write("/gone.md", "still here\n")
    workspace.result("rm", path="/gone.md")
    return workspace


@pytest.fixture
async def files(workspace_page: Page, populated: Workspace) -> Page:
    await workspace_page.goto(f"/w/{populated.id}/files")
    await expect(workspace_page.get_by_role("treeitem", name="notes.md")).to_be_visible()
    return workspace_page


@pytest.mark.long
async def test_the_tree_opens_by_keyboard_and_marks_untracked_files(
    files: Page, axe: Axe, screenshot: Screenshot
) -> None:
    await expect(files.get_by_role("treeitem", name="build, folder, untracked")).to_be_visible()
    await files.get_by_role("treeitem", name="build").focus()
    await files.keyboard.press("ArrowRight")
    await expect(files.get_by_role("treeitem", name="out.log, untracked")).to_be_visible()
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


async def test_a_name_that_deceives_opens_edits_and_deletes_exactly_its_file(files: Page, populated: Workspace) -> None:
    names = {"a%2f..%2fvictim.md": "mine\n", "victim.md": "theirs\n", "b%20c.md": "one\n", "b c.md": "two\n"}
    for name, content in names.items():
        populated.write(f"/h/{name}", content)
    populated.put_file("/h/report\u202egpj.exe", "x\n")
    populated.put_file("/h/zero\u200bwidth.md", "x\n")
    await files.goto(f"/w/{populated.id}/files")
    await files.get_by_role("treeitem", name="h, folder").click()
    for name, content in names.items():
        await files.get_by_role("treeitem", name=name, exact=True).click()
        await expect(files.get_by_role("heading", name=f"/h/{name}", exact=True)).to_be_visible()
        await expect(files.get_by_label(f"Content of /h/{name}", exact=True)).to_contain_text(content.strip())
    await expect(files.get_by_role("treeitem", name=r"report\u202egpj.exe")).to_be_visible()
    await expect(files.get_by_role("treeitem", name=r"zero\u200bwidth.md")).to_be_visible()
    await expect(files.get_by_text(r"report\u202egpj.exe")).to_be_visible()

    await files.get_by_role("treeitem", name="a%2f..%2fvictim.md").click()
    await expect(files.get_by_label("Content of /h/a%2f..%2fvictim.md")).to_contain_text("mine")
    await files.get_by_role("button", name="Delete", exact=True).click()
    dialog = files.get_by_role("dialog", name="Delete a%2f..%2fvictim.md?")
    await dialog.get_by_role("button", name="Delete").click()
    await expect(files.get_by_role("treeitem", name="a%2f..%2fvictim.md")).to_have_count(0)
    assert populated.on_disk("/h/victim.md").read_text() == "theirs\n"
    assert not populated.on_disk("/h/a%2f..%2fvictim.md").exists()


@pytest.mark.long
async def test_a_file_is_created_edited_and_restored_to_an_older_version(
    files: Page, populated: Workspace, axe: Axe, screenshot: Screenshot
) -> None:
    await files.get_by_role("button", name="New file or folder").click()
    await files.get_by_label("Path").fill("/ideas.md")
    await files.get_by_role("button", name="Create").click()
    await files.get_by_role("button", name="Edit").click()
    await files.get_by_label("Edit /ideas.md").click()
    await files.keyboard.type("first")
    await expect(files.get_by_text("Unsaved changes")).to_be_visible()
    await files.keyboard.press("Control+s")
    await files.get_by_role("button", name="Edit").click()
    await files.get_by_label("Edit /ideas.md").click()
    await files.keyboard.press("Control+End")
    await files.keyboard.type(" and second")
    await files.get_by_role("button", name="Save").click()
    await expect(files.get_by_role("button", name="Edit", exact=True)).to_be_visible()
    assert populated.on_disk("/ideas.md").read_text() == "first and second"

    await files.get_by_role("button", name="History").click()
    await expect(files.get_by_role("heading", name="Changes in version 3")).to_be_visible()
    await expect(files.get_by_text("first and second")).to_be_visible()
    await axe(files)
    await screenshot(files, "file-history")
    await files.get_by_role("button", name="Version 2").click()
    await files.get_by_role("button", name="Restore this version").click()
    await files.get_by_role("dialog").get_by_role("button", name="Restore").click()
    await expect(files.get_by_role("button", name="Version 4 current")).to_be_visible()
    assert populated.on_disk("/ideas.md").read_text() == "first"


async def test_an_edit_conflict_shows_both_versions_and_overwrites_neither(
    files: Page, populated: Workspace, axe: Axe, screenshot: Screenshot
) -> None:
    await files.get_by_role("treeitem", name="notes.md").click()
    await files.get_by_role("button", name="Edit").click()
    await files.get_by_label("Edit /notes.md").click()
    await files.keyboard.type("mine ")
    await files.get_by_role("treeitem", name="docs").press("ArrowRight")
    await files.get_by_role("treeitem", name="guide.md").click()
    populated.put_file("/notes.md", "theirs\n")
    await files.get_by_role("treeitem", name="notes.md").click()
    await expect(files.get_by_label("Edit /notes.md")).to_contain_text("mine")

    await files.get_by_role("button", name="Save", exact=True).click()

    await expect(files.get_by_role("alert")).to_contain_text("changed since")
    await expect(files.get_by_role("region", name="Edit conflict")).to_contain_text("theirs")
    assert populated.on_disk("/notes.md").read_text() == "theirs\n"
    await axe(files)
    await screenshot(files, "file-conflict")
    await files.get_by_role("button", name="Overwrite").click()
    await expect(files.get_by_role("button", name="Edit")).to_be_visible()
    assert "mine" in populated.on_disk("/notes.md").read_text()


@pytest.mark.long
async def test_search_finds_files_by_content_and_by_name_and_opens_the_line(
    files: Page, axe: Axe, screenshot: Screenshot
) -> None:
    await files.get_by_role("button", name="Search").first.click()
    await files.get_by_label("Search", exact=True).fill("def gr.*t")
    await files.keyboard.press("Enter")
    await files.get_by_role("button", name="4 def greet(name: str) -> str:").click()
    await expect(files.locator(".cm-target")).to_contain_text("def greet")
    await axe(files)
    await screenshot(files, "file-search")

    await files.get_by_label("Search in").select_option("names")
    await files.get_by_label("Search", exact=True).fill("test")
    await files.keyboard.press("Enter")
    await files.get_by_role("button", name="/src/greet_test.py").click()
    await expect(files.get_by_role("heading", name="/src/greet_test.py")).to_be_visible()


async def test_on_a_phone_a_file_is_deleted_and_restored(
    files: Page, populated: Workspace, axe: Axe, screenshot: Screenshot
) -> None:
    await files.set_viewport_size(PHONE)
    await files.get_by_role("treeitem", name="notes.md").click()
    await expect(files.get_by_role("tree")).to_be_hidden()
    await expect(files.get_by_label("Content of /notes.md")).to_contain_text("two")
    await screenshot(files, "file-phone")
    await files.get_by_role("button", name="Delete").click()
    await files.get_by_role("dialog").get_by_role("button", name="Delete").click()
    await expect(files.get_by_role("tree")).to_be_visible()
    assert not populated.on_disk("/notes.md").exists()

    await files.get_by_role("button", name="Deleted").click()
    await axe(files)
    await files.get_by_role("button", name="Restore /notes.md").click()
    await expect(files.get_by_role("heading", name="/notes.md")).to_be_visible()
    assert populated.on_disk("/notes.md").read_text() == "one\ntwo\n"
    assert await files.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
