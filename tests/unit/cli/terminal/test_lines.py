"""The status line, the prompt history, and the completion of slash commands."""

from decimal import Decimal
from pathlib import Path

import pytest

from toolcrib.cli.slash_commands import COMMANDS, completions
from toolcrib.cli.terminal.inputs import PromptHistory
from toolcrib.cli.terminal.transcript import ContextUsage, gauge, status_line

STATE = f"ready  build · guided · {gauge(ContextUsage())}"


@pytest.mark.parametrize(
    ("usage", "shown"),
    [
        (ContextUsage(18), "18 tokens"),
        (ContextUsage(12_000), "12k tokens"),
        (ContextUsage(0, 200_000), "░░░░░░░░ 0% of 200k"),
        (ContextUsage(100_000, 200_000), "████░░░░ 50% of 200k"),
        (ContextUsage(100_000, 200_000, Decimal("0.125")), "████░░░░ 50% of 200k · $0.12"),
        (ContextUsage(18, has_unpriced=True), "18 tokens · unknown price"),
        (ContextUsage(18, cost=Decimal("1.5"), has_unpriced=True), "18 tokens · $1.50 + unknown price"),
        (ContextUsage(3_000_000, 2_000_000), "████████ 100% of 2M"),
    ],
)
def test_the_gauge_shows_how_full_the_context_is(usage: ContextUsage, shown: str) -> None:
    assert gauge(usage) == shown


@pytest.mark.parametrize("width", [20, 40, 60, 80, 132])
@pytest.mark.parametrize("where", ["~/pond", "/a/very/long/path/" * 8, "~/東京/計画"])
def test_the_run_state_is_never_truncated(where: str, width: int) -> None:
    line = status_line(where, "assistant", "ollama/qwen3", state=STATE, width=width)

    assert line.endswith(" ready  build · guided · 0 tokens ")


def test_a_wide_status_line_shows_everything_and_a_narrow_one_the_end_of_the_path() -> None:
    wide = status_line("~/pond", "assistant", "ollama/qwen3", state=STATE, width=80)
    narrow = status_line("/home/ada/" + "x" * 60 + "/pond", "assistant", "ollama/qwen3", state=STATE, width=80)

    assert wide.startswith(" ~/pond · assistant · ollama/qwen3 ")
    assert narrow.startswith(" …x")


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (130, " ~/shop · assistant · openrouter/anthropic/claude-sonnet-4.5-20250929 "),
        (110, " ~/shop · assistant · claude-sonnet-4.5-20250929 "),
        (90, " ~/shop · assistant · claude-sonnet… "),
        (80, " ~/shop · assistant "),
    ],
)
def test_a_long_name_of_a_model_gives_way_to_trust_and_cost(width: int, shown: str) -> None:
    usage = ContextUsage(100_000, 200_000, Decimal("1.5"))
    state = f"ready  build · review · {gauge(usage)}"
    line = status_line(
        "~/shop", "assistant", "openrouter/anthropic/claude-sonnet-4.5-20250929", state=state, width=width
    )

    assert line.startswith(shown)
    assert line.endswith(" ready  build · review · ████░░░░ 50% of 200k · $1.50 ")
    assert len(line) == width


def test_the_history_recalls_earlier_prompts_and_the_unsent_one(tmp_path: Path) -> None:
    before = PromptHistory(tmp_path)
    before.add("one")
    before.add("two\nlines")
    before.add("two\nlines")
    history = PromptHistory(tmp_path)

    up = [history.older("half a sen"), history.older(""), history.older("")]
    down = [history.newer(), history.newer(), history.newer()]

    assert up == ["two\nlines", "one", None]
    assert down == ["two\nlines", "half a sen", None]
    assert (tmp_path / "said.jsonl").stat().st_mode & 0o077 == 0


def test_a_damaged_history_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "said.jsonl").write_text("{")

    assert PromptHistory(tmp_path).older("") is None


def test_a_slash_lists_commands_and_letters_filter_them() -> None:
    assert completions("/") == list(COMMANDS)
    assert [one.name for one in completions("/re")] == ["/redo", "/review", "/resume"]
    assert completions("/trust gui") == []
    assert completions("what / is") == []


def test_the_reference_names_every_command() -> None:
    page = (Path(__file__).parents[4] / "docs" / "reference" / "chat.md").read_text()

    assert [one.name for one in COMMANDS if f"`{one.name}" not in page] == []
