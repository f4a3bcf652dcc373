"""Images and PDFs in the message box: attached, pasted and dropped, removed, sent, and shown in the conversation."""

import struct
import zlib
from base64 import b64encode
from typing import Any

import pytest
from playwright.async_api import FilePayload, Locator, Page, expect

from tests.acceptance.workspace import Workspace
from tests.fakes.model_server import ModelServer
from tests.integration.runs.conftest import says
from tests.web.builders import begin, hire
from tests.web.conftest import PHONE, Axe, Screenshot


def picture(red: int, green: int, blue: int) -> bytes:
    """A PNG of one colour."""
    row = b"\x00" + bytes((red, green, blue)) * 120
    chunks = [
        (b"IHDR", struct.pack(">IIBBBBB", 120, 80, 8, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(row * 80)),
        (b"IEND", b""),
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )


BLUE, GREEN, RED = picture(40, 90, 200), picture(30, 140, 80), picture(200, 60, 50)
PDF: FilePayload = {"name": "paper.pdf", "mimeType": "application/pdf", "buffer": b"%PDF-1.7\n"}

# Neither text nor something that a model reads.
ZIP = b"PK\x05\x06".ljust(22, b"\x00")

# A browser gives scripts no other way to paste or drop a file.
GIVE = """([kind, name, type, data]) => {
  const bytes = Uint8Array.from(atob(data), (sign) => sign.charCodeAt(0));
  const given = new DataTransfer();
  given.items.add(new File([bytes], name, { type }));
  const box = document.querySelector("textarea");
  const options = { bubbles: true, cancelable: true };
  box.dispatchEvent(kind === "paste"
    ? new ClipboardEvent("paste", { ...options, clipboardData: given })
    : new DragEvent(kind, { ...options, dataTransfer: given }));
}"""


async def give(page: Page, kind: str, name: str, body: bytes, type_: str = "image/png") -> None:
    await page.evaluate(GIVE, [kind, name, type_, b64encode(body).decode()])


async def message_box(page: Page, workspace: Workspace, session: str) -> Locator:
    """Open a session and return its message box."""
    # Asks the browser to report file choosers from the start: otherwise the first one may come before it does.
    page.on("filechooser", lambda _: None)
    await page.goto(f"/w/{workspace.id}/chat/{session}")
    box = page.get_by_role("textbox", name="Message")
    await expect(box).to_be_enabled()
    return box


def sent_files(model: ModelServer) -> list[dict[str, Any]]:
    """The parts of the last request to the model that are no text."""
    messages = model.last.body["messages"]
    parts = [part for one in messages if isinstance(one["content"], list) for part in one["content"]]
    return [part for part in parts if part["type"] != "text"]


async def test_files_are_attached_pasted_and_dropped_and_shown_in_the_conversation(
    workspace_page: Page, workspace: Workspace, model: ModelServer, axe: Axe, screenshot: Screenshot
) -> None:
    page = workspace_page
    session = begin(workspace, hire(workspace, model), title="Colours")
    box = await message_box(page, workspace, session)
    # By keyboard alone.
    await box.focus()
    await page.keyboard.press("Shift+Tab")
    await expect(page.get_by_role("button", name="Attach files")).to_be_focused()
    async with page.expect_file_chooser() as chosen:
        await page.keyboard.press("Enter")
    blue: FilePayload = {"name": "blue.png", "mimeType": "image/png", "buffer": BLUE}
    await (await chosen.value).set_files([blue, PDF])
    await give(page, "paste", "green.png", GREEN)
    await give(page, "drop", "red.png", RED)

    chips = page.get_by_role("list", name="Attachments").get_by_role("listitem")
    await expect(chips).to_have_text(["blue.png", "paper.pdf", "green.png", "red.png"])
    await box.fill("What are these?")
    await axe(page)
    await screenshot(page, "chat-attachments-chosen")
    await page.get_by_role("button", name="Remove red.png").press("Enter")
    await expect(chips).to_have_count(3)
    await expect(box).to_be_focused()

    model.say(says("Two colours and a paper."))
    await page.keyboard.press("Enter")
    conversation = page.get_by_role("log", name="Conversation")
    await expect(conversation.get_by_text("Two colours and a paper.")).to_be_visible()
    shown = conversation.get_by_role("list", name="Attachments")
    for name in ("blue.png", "green.png"):
        await expect(shown.get_by_role("img", name=name)).to_be_visible()
    await expect(shown.get_by_text("paper.pdf")).to_be_visible()
    # The calls that store the files are no rows of their own.
    await expect(conversation.get_by_role("article")).to_have_count(2)
    await expect(page.get_by_role("button", name="Remove blue.png")).to_have_count(0)
    assert [part["type"] for part in sent_files(model)] == ["image_url", "file", "image_url"]
    assert sent_files(model)[0]["image_url"]["url"] == f"data:image/png;base64,{b64encode(BLUE).decode()}"
    await axe(page)
    await screenshot(page, "chat-attachments")

    await page.reload()
    await expect(shown.get_by_role("img", name="green.png")).to_be_visible()
    width = await shown.get_by_role("img", name="green.png").evaluate("image => image.naturalWidth")
    assert width == 120
    await page.set_viewport_size(PHONE)
    await give(page, "paste", "red.png", RED)
    await expect(page.get_by_role("button", name="Remove red.png")).to_be_visible()
    assert await page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    await axe(page)
    await screenshot(page, "chat-attachments-phone")


@pytest.mark.long
async def test_files_that_cannot_be_sent_are_refused_with_a_reason(
    workspace_page: Page, workspace: Workspace, model: ModelServer
) -> None:
    page = workspace_page
    session = begin(workspace, hire(workspace, model), title="Refused")
    await page.goto(f"/w/{workspace.id}/chat/{session}")
    await expect(page.get_by_role("textbox", name="Message")).to_be_enabled()
    alert = page.get_by_role("alert")

    await give(page, "drop", "tools.zip", b"PK\x03\x04\x00".ljust(10_000_001), "application/zip")
    await expect(alert).to_contain_text("tools.zip is too large: the limit is 10 MB.")
    await give(page, "paste", "huge.png", BLUE.ljust(5_000_001), "image/png")
    await expect(alert).to_contain_text("huge.png is too large: the limit is 5 MB.")
    await expect(page.get_by_role("list", name="Attachments")).to_have_count(0)

    # The server looks at the content, whatever the name says.
    await give(page, "drop", "fake.png", b"No picture.")
    await page.get_by_role("textbox", name="Message").fill("Look.")
    await page.keyboard.press("Enter")
    await expect(alert).to_contain_text("fake.png is not an image")
    await expect(page.get_by_role("textbox", name="Message")).to_have_value("Look.")
    await expect(page.get_by_role("button", name="Remove fake.png")).to_be_visible()


async def test_other_files_are_put_into_the_workspace_and_the_agent_reads_them(
    workspace_page: Page, workspace: Workspace, model: ModelServer, axe: Axe, screenshot: Screenshot
) -> None:
    page = workspace_page
    session = begin(workspace, hire(workspace, model), title="Prices")
    workspace.write("/uploads/prices.csv", "of another day\n")
    box = await message_box(page, workspace, session)
    async with page.expect_file_chooser() as chosen:
        await page.get_by_role("button", name="Attach files").click()
    csv: FilePayload = {"name": "prices.csv", "mimeType": "text/csv", "buffer": "milk;1.20 €\r\n".encode()}
    await (await chosen.value).set_files([csv])
    await give(page, "drop", "Makefile", b"all:\n", "")
    await give(page, "drop", "old.zip", ZIP, "application/zip")
    await give(page, "drop", "blue.png", BLUE)
    await box.fill("What does milk cost?")
    chips = page.get_by_role("list", name="Attachments").get_by_role("listitem")
    await expect(chips).to_have_text(["prices.csvto /uploads", "Makefileto /uploads", "old.zipto /uploads", "blue.png"])
    await axe(page)
    await screenshot(page, "chat-files-chosen")

    model.say(says("I read it.", ("read", {"path": "/uploads/prices-2.csv"})), says("Milk costs 1.20 €."))
    await page.keyboard.press("Enter")
    conversation = page.get_by_role("log", name="Conversation")
    await expect(conversation.get_by_text("Milk costs 1.20 €.")).to_be_visible()
    mine = conversation.get_by_role("article", name="You")
    await expect(mine).to_contain_text(
        "Files in the workspace: /uploads/prices-2.csv, /uploads/Makefile, /uploads/old.zip"
    )
    await expect(mine.get_by_role("img", name="blue.png")).to_be_visible()
    [result] = [one["content"] for one in model.last.body["messages"] if one["role"] == "tool"]
    assert "milk;1.20 €" in result
    assert workspace.on_disk("/uploads/prices-2.csv").read_bytes() == csv["buffer"]
    assert workspace.on_disk("/uploads/old.zip").read_bytes() == ZIP
    assert workspace.on_disk("/uploads/prices.csv").read_text() == "of another day\n"
    await expect(conversation.get_by_role("button", name="Changed 3 files")).not_to_contain_text("failed")
    await expect(page.get_by_role("button", name="Remove Makefile")).to_have_count(0)
    await axe(page)
    await screenshot(page, "chat-files")


# Files are read as slowly as the test says, and cannot be read if they were deleted after they were chosen.
SLOWLY = """
const arrayBuffer = Blob.prototype.arrayBuffer;
Blob.prototype.arrayBuffer = function () {
  return new Promise((done, fail) => {
    window.endReading = () => arrayBuffer.call(this).then(done);
    window.failReading = () => fail(new DOMException("A requested file could not be found.", "NotFoundError"));
  });
};
"""


async def test_a_message_waits_for_its_files_and_what_is_typed_meanwhile_stays(
    workspace_page: Page, workspace: Workspace, model: ModelServer
) -> None:
    page = workspace_page
    session = begin(workspace, hire(workspace, model), title="Logs")
    await page.add_init_script(SLOWLY)
    box = await message_box(page, workspace, session)
    await box.fill("Read the log.")
    model.say(says("I see it."))
    await give(page, "drop", "build.log", b"linking\n", "text/plain")
    await box.press("Enter")
    await page.evaluate("() => { endReading() }")
    await box.press_sequentially(" Then mend it.")

    mine = page.get_by_role("log", name="Conversation").get_by_role("article", name="You")
    await expect(mine).to_contain_text("File in the workspace: /uploads/build.log")
    await expect(mine).not_to_contain_text("Then mend it.")
    await expect(page.get_by_role("list", name="Attachments")).to_have_count(0)
    await expect(box).to_have_value("Then mend it.")


@pytest.mark.long
async def test_a_message_is_not_sent_without_a_file_that_cannot_be_read(
    workspace_page: Page, workspace: Workspace, model: ModelServer
) -> None:
    page = workspace_page
    session = begin(workspace, hire(workspace, model), title="Gone")
    await page.add_init_script(SLOWLY)
    box = await message_box(page, workspace, session)
    await box.fill("Read the log.")
    await give(page, "drop", "build.log", b"linking\n", "text/plain")
    await box.press("Enter")
    await page.evaluate("() => { failReading() }")
    await expect(page.get_by_role("alert")).to_contain_text("build.log cannot be read.")
    await expect(box).to_have_value("Read the log.")

    # Its author can do without the file.
    model.say(says("I build it."))
    await box.fill("Build it again.")
    await box.press("Enter")
    conversation = page.get_by_role("log", name="Conversation")
    await expect(conversation.get_by_text("I build it.")).to_be_visible()
    mine = conversation.get_by_role("article", name="You")
    await expect(mine).to_have_count(1)
    await expect(mine).to_contain_text("Build it again.")
    await expect(box).to_have_value("")
