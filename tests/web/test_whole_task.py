"""A complete task of a person and an agent in the browser, with a server restart in between."""

import secrets
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest
from playwright.async_api import Browser, Locator, Page, expect

from tests.acceptance.conftest import registered
from tests.acceptance.serving import Serving, free_port, running
from tests.acceptance.workspace import Workspace
from tests.databases import migrated_database, urls_of
from tests.fakes.model_server import ModelServer
from tests.integration.runs.conftest import says
from tests.wait_until import PATIENCE
from tests.web.builders import begin, hire
from tests.web.conftest import WIDE, Axe, Screenshot, log_in

PLAN = "/plans/bold-meadow-revelation.plan"
REVIEW = {
    "name": "review",
    "question": "Shall I build it?",
    "schema": {"type": "string", "enum": ["Accept", "Reject"]},
    "buttons": [{"label": "Accept", "value": "Accept"}, {"label": "Reject", "value": "Reject"}],
}
COLOUR = {"name": "colour", "question": "Which colour?", "schema": {"type": "string", "enum": ["Red", "Green"]}}


@dataclass
class Restartable:
    server: Serving
    process: ExitStack

    def stop(self) -> None:
        self.process.close()

    def start(self) -> None:
        self.process.enter_context(running(self.server))


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Restartable]:
    """A server with its own database: another server on it would pick up its runs without its secrets."""
    with migrated_database() as name, ExitStack() as process:
        server = Serving(f"http://127.0.0.1:{free_port()}", secrets.token_urlsafe(48), tmp_path, urls_of(name))
        started = Restartable(server, process)
        started.start()
        yield started


async def test_a_complete_task(
    own_server: Restartable, browser: Browser, model: ModelServer, axe: Axe, screenshot: Screenshot
) -> None:
    server = own_server.server
    lin = registered(server, f"lin-{secrets.token_hex(4)}@example.com")
    with httpx2.Client(base_url=server.api, trust_env=False, timeout=PATIENCE) as http:
        made = http.post("/workspaces", json={"name": "website"}, headers={"Authorization": f"Bearer {lin.token}"})
        project = server.data_dir / "workspaces" / made.json()["id"] / "project"
        project.mkdir(parents=True)
        workspace = Workspace(http, made.json()["id"], lin.token, project)
        workspace.write("/colours.txt", "red\ngreen\nblue\n")
        session = begin(workspace, hire(workspace, model), mode="plan")
    context = await browser.new_context(base_url=server.origin, viewport=WIDE, reduced_motion="reduce")
    context.set_default_timeout(PATIENCE * 1_000)
    page = await context.new_page()
    await log_in(page, lin, server)
    await page.goto(f"/w/{workspace.id}/chat/{session}")
    conversation = page.get_by_role("log", name="Conversation")

    # The person accepts a plan with a button, and the agent builds.
    model.say(
        says("I plan first.", ("plan_write", {"title": "Colours", "content": "1. Change *red*.", "path": PLAN})),
        says("", ("ask_user", {"questions": [REVIEW]})),
        says("", ("exit_plan_mode", {"plan_file_path": PLAN})),
        says("Now I can build."),
    )
    await expect(page.get_by_role("combobox", name="Mode")).to_have_value("plan")
    await send_message(page, "Plan some colours.")
    review = conversation.get_by_role("form", name="Plan review")
    await expect(review.get_by_role("region", name="Plan", exact=True)).to_contain_text("Change red.")
    await axe(page)
    await screenshot(page, "plan-review")
    await review.get_by_role("button", name="Accept").click()
    await expect(conversation.get_by_text("Now I can build.")).to_be_visible()
    await expect(page.get_by_role("combobox", name="Mode")).to_have_value("build")

    # A person approves a change after reading its diff. The server restarts meanwhile.
    model.say(
        says("", ("read", {"path": "/colours.txt"})),
        says("", ("edit", {"path": "/colours.txt", "old_string": "red", "new_string": "crimson"})),
        says("Changed.", ("write", {"path": "/more.txt", "content": "more\n"})),
        says("", ("ask_user", {"questions": [COLOUR]})),
        says("Green it is."),
    )
    await send_message(page, "Change red.")
    approval = conversation.get_by_role("region", name="Approval of edit")
    await expect(approval.get_by_role("region", name="Diff of /colours.txt")).to_contain_text("crimson")
    await expect(approval).to_contain_text("trust.guided")
    await axe(page)
    await screenshot(page, "approval")
    own_server.stop()
    await expect(page.get_by_text("The server is unreachable.")).to_be_visible()
    own_server.start()
    await expect(page.get_by_text("The agent is waiting for you.")).to_be_visible()
    await approval.get_by_role("button", name="Approve", exact=True).click()
    await conversation.press("End")

    # The person rejects another change with a reason.
    rejected = conversation.get_by_role("region", name="Approval of write")
    await rejected.get_by_role("button", name="Reject…").click()
    await page.keyboard.type("Not needed.")
    await rejected.get_by_role("button", name="Reject", exact=True).click()
    # The list follows new rows only while it is scrolled to the end.
    await conversation.press("End")

    # The person answers a question after a reload.
    question = conversation.get_by_role("form", name="Question")
    await expect(question).to_be_visible()
    await expect(call(conversation, "write")).to_contain_text("rejected")
    before = await conversation.inner_text()
    await page.reload()
    await expect(page.get_by_text("The agent is waiting for you.")).to_be_visible()
    await expect(question).to_be_visible()
    assert await conversation.inner_text() == before
    await question.get_by_label("Green").check()
    await question.get_by_role("button", name="Answer").click()
    await expect(conversation.get_by_text("Green it is.")).to_be_visible()
    assert (project / "colours.txt").read_text() == "crimson\ngreen\nblue\n"

    # The person undoes the run.
    undo = conversation.get_by_role("button", name="Undo this run")
    await expect(undo).to_have_count(2)
    await undo.last.click()
    dialog = page.get_by_role("dialog", name="Undo this run")
    await expect(dialog).to_contain_text("/colours.txt")
    await screenshot(page, "undo")
    await dialog.get_by_role("button", name="Undo").click()
    await expect(dialog).to_be_hidden()
    assert (project / "colours.txt").read_text() == "red\ngreen\nblue\n"
    await context.close()


async def send_message(page: Page, text: str) -> None:
    await page.get_by_role("textbox", name="Message").fill(text)
    await page.keyboard.press("Enter")


def call(conversation: Locator, tool: str) -> Locator:
    return conversation.get_by_role("article", name=f"Call of {tool}")
