"""Three people and two agents at work in one workspace at the same time: an owner, a member and a viewer."""

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass

import pytest
from playwright.async_api import Browser, Locator, Page, expect

from tests.acceptance.conftest import registered
from tests.acceptance.pending_approvals import decide
from tests.acceptance.serving import Serving
from tests.acceptance.workspace import Someone, Workspace
from tests.fakes.model_server import KEY, ModelServer, model_server_beside
from tests.integration.api.accounts import new_email
from tests.integration.runs.conftest import says
from tests.web.builders import AGENT, hire
from tests.web.conftest import PHONE, Axe, Screenshot, log_in, new_page

PRICES = "RATE = 0.19\n"
RAISED = "RATE = 0.21\n"
GUIDE = "# Prices\n\nAll prices are net.\n"
# What a viewer may use, besides what only unfolds: it reads, or sets the viewer's own marks.
READING = re.compile(
    r"^(Copy |Search|Clear search|Keyboard shortcuts$|unified$|split$|Viewed |Filter files|Tree$|Deleted$|Refresh$"
    r"|Period$|Agent$|Tool$|Arguments|Explain$|Show the rest$|/\S+\.\w+$"
    r"|History$|Content$|Version \d+|Timeline$|Audit log$|Session$|All changes$|Changes$|\d+ files? changed by )",
    re.IGNORECASE,
)
CONTROLS = "main :is(button:not([aria-expanded]), input, select, textarea, [contenteditable=true]):visible"
NAMES = """all => all.map(one =>
  (one.ariaLabel || one.labels?.[0]?.textContent || one.title || one.textContent || one.outerHTML).trim())"""


@dataclass(frozen=True)
class Team:
    """The workspace of the owner, the pages of all three, and the models of those who write to agents."""

    workspace: Workspace
    owner: Someone
    member: Someone
    viewer: Someone
    owners: Page
    members: Page
    viewers: Page
    owners_model: ModelServer
    members_model: ModelServer

    @property
    def pages(self) -> tuple[Page, Page, Page]:
        return self.owners, self.members, self.viewers

    async def open(self, path: str, *pages: Page) -> None:
        for page in pages or self.pages:
            await page.goto(f"/w/{self.workspace.id}/{path}")


@pytest.fixture
def members_model() -> Iterator[ModelServer]:
    """An agent uses the model key of who writes to it: the member has a model of their own."""
    with model_server_beside() as fake:
        yield fake


@pytest.fixture
async def team(
    browser: Browser,
    server: Serving,
    workspace: Workspace,
    ada: Someone,
    grace: Someone,
    model: ModelServer,
    members_model: ModelServer,
) -> AsyncIterator[Team]:
    viewer = registered(server, new_email())
    member_view = workspace.admit(grace, "member")
    workspace.admit(viewer, "viewer")
    hire(workspace, model, name="coder")
    rules = AGENT.format(trust="review")
    assert workspace.post("/agents", {"name": "writer", "definition": rules}).status_code == 201
    key = {"secret": KEY, "base_url": f"{members_model.url}/v1"}
    stored = member_view.http.put("/credentials/openai-compatible", json=key, headers=member_view.headers)
    assert stored.status_code == 204, stored.text
    workspace.write("/price.py", PRICES)
    async with AsyncExitStack() as stack:
        pages = [await stack.enter_async_context(new_page(browser, server)) for _ in range(3)]
        for page, person in zip(pages, (ada, grace, viewer), strict=True):
            await log_in(page, person, server)
        await pages[0].context.grant_permissions(["clipboard-read", "clipboard-write"])
        owners, members, viewers = pages
        yield Team(workspace, ada, grace, viewer, owners, members, viewers, model, members_model)


async def test_two_people_work_with_two_agents_and_a_third_watches(
    team: Team, axe: Axe, screenshot: Screenshot
) -> None:
    owner, member, viewer = team.pages
    prices = await begins(team, owner, "Prices", "coder")
    await team.open(f"chat/{prices}", member, viewer)

    # Each reads what the others write, with its author, and what the agent asks.
    team.owners_model.say(
        says("I raise it.", ("write", {"path": "/price.py", "content": RAISED, "overwrite": True})),
        says("The rate is 21 %."),
    )
    await send(owner, "Raise the rate.")
    for page in (member, viewer):
        await expect(log(page).get_by_role("article", name=team.owner.email)).to_contain_text("Raise the rate.")
        await expect(approval(page).get_by_role("region", name="Diff of /price.py")).to_contain_text("0.21")
    await send(member, "And say so in the docs.")
    for page in (owner, viewer):
        await expect(log(page).get_by_role("article", name=team.member.email)).to_contain_text("And say so")
    await expect(buttons(viewer, "Approve")).to_have_count(0)
    await screenshot(viewer, "three-people-viewer")

    # Meanwhile the other agent works for the member, and the others see its session appear.
    guide = await begins(team, member, "Guide", "writer")
    entry = owner.get_by_role("link", name=f"{team.member.email}: Guide")
    await expect(entry).to_be_visible()
    team.members_model.say(says("", ("write", {"path": "/guide.md", "content": GUIDE})), says("The guide is written."))
    await send(member, "Write the guide.")
    await expect(log(member).get_by_text("The guide is written.")).to_be_visible()
    await entry.click()
    await expect(log(owner).get_by_text("The guide is written.")).to_be_visible()
    await team.open(f"chat/{prices}", owner)
    await expect(approval(owner)).to_be_visible()

    # One decides in the inbox what the other's agent asked. The others see it decided, and by whom.
    team.members_model.say(says("The docs say so."))
    await member.get_by_role("link", name="Inbox").first.click()
    row = member.get_by_role("region", name="Approvals").get_by_role("listitem").filter(has_text="/price.py")
    await row.get_by_role("checkbox").check()
    await member.get_by_role("toolbar").get_by_role("button", name="Approve").click()
    await member.get_by_role("dialog").get_by_role("button", name="Approve 1 call").click()
    await expect(row).to_have_count(0)
    for page in (owner, viewer):
        await expect(log(page).get_by_text(f"approved by {team.member.email}")).to_have_count(1)
        # Only who could have decided is told to be late.
        await expect(log(page).get_by_text("Already approved")).to_have_count(1 if page is owner else 0)
        await expect(approval(page)).to_have_count(0)
        await expect(log(page).get_by_text("The rate is 21 %.")).to_be_visible()
        await expect(log(page).get_by_text("The docs say so.")).to_be_visible()
    assert team.workspace.on_disk("/price.py").read_text() == RAISED

    # A comment of the owner on a line reaches the member's agent.
    await team.open(f"chat/{guide}", member)
    await team.open(f"review/session/{guide}", owner, viewer)
    file = owner.get_by_role("article", name="/guide.md")
    await file.get_by_text("All prices are net.").hover()
    await file.get_by_role("button", name="Comment on line new 3").click()
    await file.get_by_label("Comment on line 3").last.fill("Since when?")
    team.owners_model.say(says("Since January."))
    await file.get_by_role("button", name="Send now").click()
    commented = log(member).get_by_role("article", name=team.owner.email)
    await expect(commented).to_contain_text("/guide.md, line 3:")
    await expect(commented).to_contain_text("Since when?")
    await expect(log(member).get_by_text("Since January.")).to_be_visible()
    assert "> +All prices are net.\\n\\nSince when?" in str(team.owners_model.last.body)

    # Kept by one, it is gone for the others.
    await expect(viewer.get_by_role("article", name="/guide.md")).to_be_visible()
    await file.get_by_role("button", name="Keep").click()
    for page in (owner, viewer):
        await expect(page.get_by_text("Nothing waits for a review")).to_be_visible()

    # An undo by one is shown to the others: in the history, and in the file.
    await team.open(f"history?session={prices}", owner, member)
    await team.open("files?path=%2Fprice.py", viewer)
    await expect(viewer.get_by_label("Content of /price.py")).to_contain_text("0.21")
    await expect(owner.get_by_role("button", name="Undo write /price.py")).to_be_visible()
    await member.get_by_role("button", name="Undo write /price.py").click()
    await member.get_by_role("dialog").get_by_role("button", name="Undo 1 file").click()
    await expect(owner.get_by_role("button", name="Redo write /price.py")).to_be_visible()
    await expect(viewer.get_by_label("Content of /price.py")).to_contain_text("0.19")
    await screenshot(owner, "three-people-undone")

    # The read-only link opens for both, without a control.
    await team.open(f"chat/{prices}", owner)
    await owner.get_by_role("button", name="Copy read-only link for members").click()
    await expect(owner.get_by_role("button", name="Link copied")).to_be_visible()
    link = await owner.evaluate("navigator.clipboard.readText()")
    assert link.endswith(f"/chat/{prices}?readonly")
    for page in (member, viewer):
        await page.goto(link)
        await expect(log(page).get_by_text("The rate is 21 %.")).to_be_visible()
        assert await controls_to_act(page) == []
    await axe(member)
    await expect(member.get_by_role("link", name="Open with controls")).to_be_visible()
    await expect(viewer.get_by_role("link", name="Open with controls")).to_have_count(0)


@pytest.mark.long
async def test_a_viewer_sees_all_that_is_there_and_nothing_to_act_with(
    team: Team, axe: Axe, screenshot: Screenshot
) -> None:
    viewer, workspace = team.viewers, team.workspace
    prices = await begins(team, team.owners, "Prices", "coder")
    question = {"name": "when", "question": "From when?", "schema": {"type": "string", "enum": ["January", "June"]}}
    team.owners_model.say(
        says("", ("write", {"path": "/price.py", "content": RAISED, "overwrite": True})),
        says("", ("ask_user", {"questions": [question]})),
    )
    await send(team.owners, "Raise the rate.")
    await approval(team.owners).get_by_role("button", name="Approve", exact=True).click()
    await expect(team.owners.get_by_role("form", name="Question")).to_be_visible()
    guide = await begins(team, team.members, "Guide", "writer")
    team.members_model.say(says("", ("write", {"path": "/guide.md", "content": GUIDE})), says("It is written."))
    await send(team.members, "Write the guide.")
    await expect(log(team.members).get_by_text("It is written.")).to_be_visible()
    workspace.write("/gone.md", "x\n")
    workspace.result("rm", path="/gone.md")
    [run] = workspace.get(f"/sessions/{prices}/runs").json()["items"]
    asking = workspace.agent("trust: supervised\ntool_permissions: {write: {allowed: true}}")
    granted = asking.post("/tools", {"tool": "write", "args": {"path": "/granted.md", "content": "x\n"}}).json()[
        "result"
    ]
    rule = {"tools": ["write"], "paths": ["granted.md"]}
    assert decide(workspace, granted["pause_id"], scope="always", rule=rule).status_code == 200
    asking.post("/tools", {"tool": "write", "args": {"path": "/asked.md", "content": "x\n"}})
    waiting = next(one for one in workspace.get("/paused-calls").json()["items"] if one["kind"] == "approval")

    shown = {
        f"chat/{prices}": "From when?",
        f"chat/{guide}": "It is written.",
        "approvals": "From when?",
        f"review/session/{guide}": "All prices are net.",
        f"review/run/{run['id']}": "0.21",
        f"review/approval/{waiting['id']}": "/asked.md",
        "files?path=%2Fprice.py": "0.21",
        "files?path=%2Fprice.py&view=history": "Changes in version 2",
        "files?panel=deleted": "/gone.md",
        f"history?session={prices}": "Raise the rate.",
        "schedules": "No schedules yet",
        "start": "You can read this workspace",
        "settings/members": "Only owners can add members",
        "settings/agents": "writer",
        "settings/permissions": "granted.md",
        "settings/mcp": "No MCP servers yet",
        "settings/usage": "By agent",
        "settings/status": "Isolation",
    }
    found: dict[str, list[str]] = {}
    for path, text in shown.items():
        await team.open(path, viewer)
        await expect(viewer.locator("main").get_by_text(text).first).to_be_visible()
        if controls := await controls_to_act(viewer):
            found[path] = controls
    # Anyone may leave.
    assert found == {"settings/members": [f"Remove {team.viewer.email}"]}

    # The question is there to read, with its answers.
    await team.open(f"chat/{prices}", viewer)
    asked = viewer.get_by_role("region", name="Question")
    await expect(asked.get_by_role("listitem")).to_have_text(["January", "June"])
    await expect(asked).to_contain_text("A member or an owner answers.")
    await axe(viewer)
    await screenshot(viewer, "three-people-question")
    await viewer.set_viewport_size(PHONE)
    assert await viewer.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    # Keys offer nothing either.
    await viewer.keyboard.press("n")
    await viewer.keyboard.press("?")
    keys = viewer.get_by_role("dialog", name="Keyboard shortcuts")
    await expect(keys).to_be_visible()
    await expect(keys.get_by_text("New session")).to_have_count(0)
    await expect(viewer.get_by_role("dialog", name="New session")).to_have_count(0)


async def test_a_text_is_copied_also_where_the_browser_offers_no_clipboard(team: Team) -> None:
    page = team.members
    # As over plain HTTP.
    await page.context.add_init_script("delete Navigator.prototype.clipboard")
    session = await begins(team, page, "Copies", "writer")
    team.members_model.say(says("Twenty-one percent."))
    await send(page, "How much?")
    answer = log(page).get_by_role("article", name="Agent")
    await expect(answer).to_contain_text("Twenty-one percent.")
    box = page.get_by_role("textbox", name="Message", exact=True)
    for button, text in (
        (answer.get_by_role("button", name="Copy message"), "Twenty-one percent."),
        (buttons(page, "Copy read-only link for members"), f"/chat/{session}?readonly"),
    ):
        await answer.hover()
        await button.click()
        await expect(page.get_by_role("button", name=re.compile("^(Link copied|Copied)$"))).to_be_visible()
        await box.click()
        await page.keyboard.press("ControlOrMeta+a")
        await page.keyboard.press("ControlOrMeta+v")
        await expect(box).to_have_value(re.compile(re.escape(text) + "$"))


async def begins(team: Team, page: Page, title: str, agent: str) -> str:
    """Start a session with an agent in the page. Return its id."""
    await team.open("chat", page)
    await buttons(page, "New").click()
    dialog = page.get_by_role("dialog", name="New session")
    await dialog.get_by_role("radio", name=agent).check()
    await dialog.get_by_role("textbox", name="Title").fill(title)
    await dialog.get_by_role("button", name="Start").click()
    await expect(page.get_by_role("heading", name=title)).to_be_visible()
    return page.url.rpartition("/")[2]


async def send(page: Page, text: str) -> None:
    await page.get_by_role("textbox", name="Message", exact=True).fill(text)
    await page.keyboard.press("Enter")


async def controls_to_act(page: Page) -> list[str]:
    """The names of the controls in sight that do more than read."""
    names = await page.locator(CONTROLS).evaluate_all(NAMES)
    return [name for name in names if not READING.search(name)]


def log(page: Page) -> Locator:
    return page.get_by_role("log", name="Conversation")


def approval(page: Page) -> Locator:
    return log(page).get_by_role("region", name="Approval of write")


def buttons(page: Page, name: str) -> Locator:
    return page.get_by_role("button", name=name, exact=True)
