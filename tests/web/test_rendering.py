"""What a person approves is what they see: generated change sets in the browser and in a terminal of 80 columns.

One batch runs in the gate, the others with ``make campaigns ONLY=browser``.
"""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.async_api import Locator, Page, expect
from rich.cells import cell_len
from textual.app import App, ComposeResult
from textual.containers import Container, VerticalScroll
from textual.widgets import Static

from tests.acceptance.pending_approvals import hire
from tests.acceptance.serving import Serving
from tests.acceptance.workspace import Someone, Workspace
from tests.web.change_sets import HOSTILE, RULES, change_set
from tests.web.conftest import Screenshot, log_in
from toolcrib.cli.terminal import pause_panels
from toolcrib.cli.terminal.pause_panels import ApprovalPanel
from toolcrib.client import ApprovalOut
from toolcrib.core.approval_text import ShownLine, change_facts, totals
from toolcrib.core.display_text import ESCAPED, escape_line
from toolcrib.schemas.paused_calls import parse_paused_call

BATCH = 10
BATCHES = 20
WIDTHS = (390, 1280, 1920)
COLUMNS, ROWS = 80, 24
DECEPTIVE = re.compile("[" + "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in ESCAPED) + "]")
# The lines of a card, and every character of them that is not in sight: outside the window, clipped or hidden.
LINES = """
card => {
  const wide = document.documentElement.clientWidth, hidden = [], lines = [], seen = new Map();
  const say = (why, line) => hidden.push([why, line.textContent.slice(0, 60)]);
  // The visible part of an element: what its ancestors do not clip.
  const frame = element => {
    if (element === null) return { left: 0, right: wide, why: "" };
    if (seen.has(element)) return seen.get(element);
    const { left, right, why } = frame(element.parentElement), style = getComputedStyle(element);
    const box = element.getBoundingClientRect(), clips = style.overflowX !== "visible";
    const found = {
      left: clips ? Math.max(left, box.left) : left,
      right: clips ? Math.min(right, box.right) : right,
      why: why || (style.display === "none" && "display") || (style.visibility !== "visible" && "visibility")
        || (style.opacity !== "1" && "opacity") || (Number.parseFloat(style.fontSize) < 9 && "tiny")
        || (style.display !== "inline" && element.scrollWidth > element.clientWidth + 1 && element.clientWidth > 0
            && `scrolls sideways: ${element.tagName} ${element.className}`) || "",
    };
    seen.set(element, found);
    return found;
  };
  const range = document.createRange();
  for (const line of card.querySelectorAll("[data-line]")) {
    lines.push([line.dataset.line, line.textContent]);
    const { left, right, why } = frame(line);
    if (why) say(why, line);
    const check = () => {
      const boxes = range.getClientRects();
      if (boxes.length === 0) say("not laid out", line);
      const isOut = box => box.left < left - 1 || box.right > right + 1;
      for (const box of boxes) if (isOut(box)) say(`at ${box.left}-${box.right}`, line);
    };
    const texts = document.createTreeWalker(line, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
      let at = 0;
      // Words of plain letters as a whole, with each row of them; every other character alone.
      for (const [piece] of texts.currentNode.data.matchAll(/[!-~]+|[^!-~]/gu)) {
        range.setStart(texts.currentNode, at);
        range.setEnd(texts.currentNode, (at += piece.length));
        check();
      }
    }
  }
  return { hidden: hidden.slice(0, 5), lines, text: card.innerText,
           sideways: document.documentElement.scrollWidth - wide };
}
"""
CLICK = """
(card, text) => {
  const found = [...card.querySelectorAll("button")].filter(button => button.textContent.startsWith(text));
  found.forEach(button => button.click());
}
"""


@pytest.mark.gate_cases(1)
@pytest.mark.parametrize("batch", range(BATCHES))
async def test_every_changed_line_is_seen_whole_before_approval(
    page: Page,
    ada: Someone,
    server: Serving,
    new_workspace: Callable[[Someone], Workspace],
    screenshot: Screenshot,
    batch: int,
) -> None:
    workspace = new_workspace(ada)
    agent = hire(workspace, RULES)
    sets = [change_set(seed) for seed in range(batch * BATCH, (batch + 1) * BATCH)]
    pending = [fetched(workspace, one.propose(workspace, agent)) for one in sets]

    await in_a_terminal(pending)

    await log_in(page, ada, server)
    await page.goto(f"/w/{workspace.id}/approvals")
    cards = page.get_by_role("region", name="Approval of")
    await expect(cards).to_have_count(len(pending))
    for number, approval in enumerate(pending):
        await expand(cards.nth(number), approval)
    for width in WIDTHS:
        await page.set_viewport_size({"width": width, "height": 900})
        for number, approval in enumerate(pending):
            await in_the_browser(cards.nth(number), approval, width)
        if batch == 0:
            await screenshot(page, f"rendering-{width}")


def fetched(workspace: Workspace, pause_id: str) -> ApprovalOut:
    response = workspace.get(f"/paused-calls/{pause_id}").json()
    approval = parse_paused_call(response)
    assert isinstance(approval, ApprovalOut)
    assert approval.changes, approval.input
    assert response["text"] == "\n".join(line.text for line in approval.lines), "the API has the same text"
    assert not DECEPTIVE.search(response["text"].replace("\n", ""))
    return approval


async def expand(card: Locator, approval: ApprovalOut) -> None:
    """Open all diffs and show all of their lines, as a person can."""
    diffs = sum(bool(change.diff) for change in approval.changes)
    # The card fetches the diffs that the list leaves out.
    await expect(card.get_by_role("list", name="Changes").locator("details")).to_have_count(diffs)
    await card.evaluate(CLICK, "Open all")
    await expect(card.locator("details[open]:has([data-line])")).to_have_count(diffs)
    await card.evaluate(CLICK, "Show all")


async def in_the_browser(card: Locator, approval: ApprovalOut, width: int) -> None:
    found = await card.evaluate(LINES)
    assert found["hidden"] == [], (width, approval.input)
    assert found["sideways"] == 0, width
    for kind in ("gone", "new"):
        shown = [text for one, text in found["lines"] if one == kind]
        assert shown == lines_of(approval, kind), (width, kind, approval.input)
    text = " ".join(found["text"].split())
    assert not DECEPTIVE.search(text)
    changes = [change.model_dump(by_alias=True) for change in approval.changes]
    assert totals(changes) in text
    for change in changes:
        names = [escape_line(name) for name in (change["from"], change["path"]) if name]
        for fact in (*names, change["change"], *change_facts(change)):
            assert " ".join(fact.split()) in text, (width, fact)


def lines_of(approval: ApprovalOut, kind: str) -> list[str]:
    return ["".join(part for part, _ in line.parts) for line in approval.lines if line.style == kind]


class Terminal(App[None]):
    """The panel of a pending call, in the look of the chat."""

    CSS_PATH = Path(pause_panels.__file__).parent / "look.tcss"

    def compose(self) -> ComposeResult:
        yield Container(id="waiting")


async def in_a_terminal(pending: list[ApprovalOut]) -> None:
    """The panel has a row for every part of every line, and none of them is wider than the panel."""
    app = Terminal()
    async with app.run_test(size=(COLUMNS, ROWS)) as pilot:
        for approval in pending:
            panel = ApprovalPanel(approval)
            await app.query_one("#waiting").mount(panel)
            await pilot.press("s")
            await pilot.pause()
            text, reading = panel.query_one(".lines", Static), panel.query_one(".reading", VerticalScroll)
            width = text.content_size.width
            assert 0 < width <= COLUMNS - 4
            assert reading.max_scroll_x == 0
            assert reading.virtual_size.height >= text.size.height, "all of it can be scrolled to"
            rows = ["".join(part.text for part in text.render_line(y)).rstrip() for y in range(text.size.height)]
            expected = [row for line in approval.lines for row in folded(line, width)]
            assert rows == expected, approval.input
            await panel.remove()


def folded(line: ShownLine, width: int) -> list[str]:
    """The rows of a line: as many cells as fit, or as many words of a sentence, always behind the gutter."""
    rows, row = [], ""
    for sign in "".join(part for part, _ in line.parts):
        row += sign
        if cell_len(line.gutter) + cell_len(row) > width:
            end = row.rindex(" ", 0, -1) + 1 if line.style == "note" else -1
            rows.append(row[:end])
            row = row[end:]
    rows.append(row)
    return [((" " * len(line.gutter) if number else line.gutter) + row).rstrip() for number, row in enumerate(rows)]


def test_generated_sets_contain_every_kind_of_trick() -> None:
    sets = [change_set(seed) for seed in range(BATCH * BATCHES)]
    everything = "\n".join(
        [str(one.arguments.get("content", "")) for one in sets]
        + [body.decode("utf-8", "replace") for one in sets for body in one.before.values()]
    )

    assert all(text.replace("\ue000", "") in everything.replace("\ue000", "") for text in HOSTILE)
    assert max(map(len, everything.split("\n"))) > 3_000
    assert re.search(r"\) {400}", everything)
    assert "\r\n" in everything
    assert {one.tool for one in sets} == {"write", "bash"}
