"""How commands find an id, and what they print of errors and changes."""

from decimal import Decimal
from io import StringIO
from typing import Any
from uuid import UUID

import pytest
from rich.console import Console

from toolcrib.cli.models import parse_model
from toolcrib.cli.session_printer import SessionPrinter
from toolcrib.cli.terminal_text import (
    HangingLine,
    change_lines,
    cost_text,
    error_text,
    failure,
    find_by_id,
    invalid_answer,
    prose,
    rule_text,
    shown_diff,
    styled,
)
from toolcrib.client import GrantRuleOut, StreamMessage
from toolcrib.core.approval_text import LineStyle, ShownLine
from toolcrib.core.errors import BadArguments, NotFound
from toolcrib.sdk.default_agent import ModelChoice

FIRST = UUID("0199c0de-0000-7000-8000-00000000aaaa")
SECOND = UUID("0199c0de-1111-7000-8000-00000000bbbb")


def found(text: str) -> UUID:
    return find_by_id([FIRST, SECOND], text, lambda one: one, missing="There is none.")


@pytest.mark.parametrize("text", ["0199c0de-0", "AAAA", str(FIRST)])
def test_the_start_or_the_end_of_an_id_is_enough(text: str) -> None:
    assert found(text) == FIRST


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0199c0de", "2 ids match '0199c0de'. Give more characters of the id."),
        ("cccc", "There is none."),
        ("aaa", "There is none."),
        ("", "There is none."),
    ],
    ids=["ambiguous", "unknown", "too short", "empty"],
)
def test_an_id_that_is_not_unique_is_not_guessed(text: str, message: str) -> None:
    with pytest.raises(NotFound) as error:
        found(text)

    assert error.value.message == message


def test_an_error_names_the_fields_that_are_wrong() -> None:
    fields = {"count": "must be positive", "na\x1bme": "is missing"}
    ended = {"error": {"code": "VALIDATION_ERROR", "message": "Validation failed", "fields": fields}}

    assert error_text(BadArguments(fields)) == (
        "Validation failed\n  count: must be positive\n  na\\u001bme: is missing"
    )
    assert failure(ended) == "count: must be positive; na\\u001bme: is missing"
    assert invalid_answer({"count": "must be positive"}) == "Invalid answer: count: must be positive"


def test_an_error_that_explains_its_fields_does_not_repeat_them() -> None:
    assert error_text(BadArguments({"name": "is taken"}, "The name is taken.")) == "The name is taken."


def test_undo_changes_back_and_redo_changes_again() -> None:
    changes = [{"path": "/a", "change": "modified"}, {"path": "/c", "change": "moved", "from_path": "/b"}]
    result: dict[str, Any] = {"changes": changes, "total_changes": 2, "conflicts": [], "total_conflicts": 0}

    assert [str(line) for line in change_lines(result, undone=True)] == [
        "  changed back: /a",
        "  moved back: /c (from /b)",
        "Undone: 2 files.",
    ]
    assert [str(line) for line in change_lines(result | {"dry_run": True}, undone=False)] == [
        "  would be changed again: /a",
        "  would be moved again: /c (from /b)",
        "Would redo: 2 files.",
    ]
    assert [str(line) for line in change_lines(result | {"total_changes": 12_000}, undone=True)][2:] == [
        "  … and 11,998 more",
        "Undone: 12,000 files.",
    ]
    skipped = {"path": "/d", "reason": "You changed it since."}
    some_left = change_lines(result | {"conflicts": [skipped], "total_conflicts": 1}, undone=True)
    assert str(some_left[-1]).startswith("Undone: 2 files. Skipped: 1 file, listed above")


def test_a_model_of_an_unknown_provider_is_rejected_with_the_list() -> None:
    assert parse_model("openai-compatible/meta/llama") == ModelChoice("openai-compatible", "meta/llama")
    with pytest.raises(NotFound, match=r"There is no provider 'nobody'\. Providers: anthropic, .*openai, .*ollama\."):
        parse_model("nobody/gpt")


def test_undo_counts_the_files_of_git_and_lists_the_others() -> None:
    def change(path: str) -> dict[str, str]:
        return {"path": path, "change": "modified"}

    found = {
        "changes": [change("/a.py"), change("/.git/index"), change("/.git/refs/heads/main"), change("/sub/.git/HEAD")],
        "conflicts": [],
        "total_changes": 4,
        "total_conflicts": 0,
    }

    assert [str(line) for line in change_lines(found, undone=True)] == [
        "  changed back: /a.py",
        "  changed back: /.git (2 files of git)",
        "  changed back: /sub/.git (1 file of git)",
        "Undone: 4 files.",
    ]


def test_rule_shows_each_command_on_a_line_of_its_own() -> None:
    rule = GrantRuleOut(tools=["bash"], commands=["curl -s example.org", "head *"])

    assert rule_text(rule) == "any call of bash that runs:\n  │ curl -s example.org\n  │ head *"


@pytest.mark.parametrize(
    ("cost", "unpriced", "shown"),
    [
        (Decimal(0), 0, "$0.00"),
        (Decimal("1234.5"), 0, "$1,234.50"),
        (Decimal("0.0213"), 2, "$0.0213, and 2 turns of unknown price"),
        (None, 3, "unknown price"),
    ],
)
def test_a_cost_reads_the_same_everywhere(cost: Decimal | None, unpriced: int, shown: str) -> None:
    assert cost_text(cost, unpriced) == shown


def test_a_rule_for_a_host_alone_says_that_it_approves_no_command() -> None:
    rule = GrantRuleOut(tools=["bash"], hosts=["example.org"])

    assert rule_text(rule) == "bash may contact example.org; commands are decided as before"


def colours(console: Console, line: HangingLine) -> list[tuple[str, str]]:
    return [(part.text, str(part.style or "")) for part in console.render(line) if part.text != "\n"]


def test_each_row_of_a_line_has_its_colour_and_marks_have_their_own() -> None:
    console = Console(width=8, color_system="truecolor", force_terminal=True)
    hunk, gone, new, same = shown_diff("@@ -1,2 +1,2 @@\n-one\n+once upon\n two\n")

    assert {colour for _, colour in colours(console, hunk)} == {"cyan"}
    assert colours(console, gone) == [("  -one", "red")]
    assert colours(console, new) == [("  +once ", "green"), ("   upon", "green")]
    assert {colour for _, colour in colours(console, same)} == {""}
    styles: dict[LineStyle, str] = {"title": "bold", "note": "dim", "warning": "yellow", "change": "bold"}
    for style, colour in styles.items():
        assert colours(console, styled(ShownLine(style, "", (("text", False),)))) == [("text", colour)]
    marked = styled(ShownLine("new", "+", (("a", False), ("·", True))))
    assert colours(console, marked) == [("+a", "green"), ("·", "black on yellow")]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("⚠\ufe0f ❤\ufe0f 1\ufe0f\u20e3 👩\u200d👩\u200d👧 🏳\ufe0f\u200d🌈 👍🏽 👩🏽\u200d💻", None),
        ("pass\u200dword", "pass\\u200dword"),
        ("a\ufe0fb👩\u200d", "a\\ufe0fb👩\\u200d"),
        ("👩\u200d\u200d👩 \u200d👩", "👩\\u200d\\u200d👩 \\u200d👩"),
        ("👩\u202e\u200b⚠\ufe0f\ufe0f", "👩\\u202e\\u200b⚠\ufe0f\\ufe0f"),
    ],
)
def test_emoji_stay_whole_in_prose_and_nothing_else_that_is_invisible(text: str, shown: str | None) -> None:
    assert prose(text) == (text if shown is None else shown)
    # In one piece, and as a stream that is cut anywhere.
    for size in (1, 2, 3):
        out = StringIO()
        printer = SessionPrinter(out)
        for offset in range(0, len(text), size):
            delta = {"messageId": "m", "content": text[offset : offset + size], "attempt": 0, "offset": offset}
            printer.show(StreamMessage(type="chat:text-delta", payload=delta))
        printer.show(StreamMessage(type="chat:stream-end", payload={"messageId": "m", "content": text}))
        assert out.getvalue() == (text if shown is None else shown) + "\n"
