"""What the pages for operators say is so: codes, messages, events of the log, limits, and the samples in deploy/."""

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest

from tests.docs.blocks import ROOT, blocks_of
from toolcrib.api.http_errors import STATUS
from toolcrib.cli import runs as runs_command
from toolcrib.core.runs import RunWait
from toolcrib.runs import durable
from toolcrib.sandbox.resource_limits import MIB, ResourceLimits
from toolcrib.settings import Settings
from toolcrib.tools.shell import background_shell, shell

OPERATIONS = ROOT / "docs" / "operations"
PROXY, SIZING, TROUBLESHOOTING = (
    (OPERATIONS / page).read_text(encoding="utf-8") for page in ("proxy.md", "sizing.md", "troubleshooting.md")
)
PAGES = {"proxy.md": PROXY, "sizing.md": SIZING, "troubleshooting.md": TROUBLESHOOTING}
CODE_ROW = re.compile(r"^\| `([A-Z_]+)` \| (\d{3}) \|", re.MULTILINE)
# A message in a table or a sentence: between typographer's plain quotes, not in code.
QUOTED = re.compile(r'(?<![`\w])"((?:[^"`\n]|`[^`\n]*`)+)"(?!`)')
EVENT = re.compile(r"`([a-z_]+\.[a-z_]+)`")


@cache
def strings_of_the_program() -> tuple[str, ...]:
    """Every text in the source; what is filled in at run time is ``…``."""
    files = sorted((ROOT / "src" / "toolcrib").rglob("*.py"))
    return tuple(text for file in files for text in _strings(ast.parse(file.read_bytes())))


def _strings(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)


def is_said(message: str) -> bool:
    """Whether the program has this text, where ``…`` is any text, on either side."""
    shown = _matching(message)
    return any(shown.search(text) or _fills(text, message) for text in strings_of_the_program())


def _fills(text: str, message: str) -> bool:
    """Whether the message is the text with something filled in; most of it must be the text's own."""
    is_mostly_text = 2 * len(text.replace("…", "")) > len(message)
    return "…" in text and is_mostly_text and _matching(text).fullmatch(message) is not None


def _matching(text: str) -> re.Pattern[str]:
    return re.compile(".*?".join(re.escape(part) for part in text.split("…")), re.DOTALL)


def without_blocks(text: str) -> str:
    return re.sub(r"^ *```.*?^ *```$", "", text, flags=re.MULTILINE | re.DOTALL)


def test_a_message_that_the_program_does_not_have_is_noticed() -> None:
    assert is_said("The database role … so row-level security would not apply.")
    assert is_said("The disk is not available.")
    assert not is_said("The database role … is fine.")
    assert not is_said("The disk is not there.")


def test_every_quoted_message_is_one_of_the_program() -> None:
    quoted = QUOTED.findall(without_blocks(TROUBLESHOOTING))

    assert len(quoted) > 25
    assert [one for one in quoted if not is_said(one)] == []


def test_every_code_is_real_and_has_this_status() -> None:
    rows = CODE_ROW.findall(TROUBLESHOOTING)

    assert len(rows) > 15
    assert {code: int(status) for code, status in rows} == {code: STATUS[code] for code, _ in rows}
    named = {code for text in PAGES.values() for code in re.findall(r"`([A-Z]+(?:_[A-Z]+)+)`", text)}
    assert {code for code in named if not code.startswith("TOOLCRIB_")} <= set(STATUS)


@pytest.mark.parametrize("page", PAGES)
def test_every_setting_and_event_of_the_log_exists(page: str) -> None:
    settings = {f"TOOLCRIB_{name.upper()}" for name in Settings.model_fields}
    of_caddy = {"TOOLCRIB_DOMAIN", "TOOLCRIB_TLS", "TOOLCRIB_UPSTREAM"}
    text = PAGES[page]

    assert set(re.findall(r"\bTOOLCRIB_[A-Z_]+\b", text)) <= settings | of_caddy
    events = {one for one in EVENT.findall(without_blocks(text)) if not one.endswith((".md", ".yml", ".conf"))}
    assert [one for one in events if one not in strings_of_the_program()] == []


def test_everything_that_a_run_can_wait_for_is_explained() -> None:
    explained = set(runs_command._WAITS.values()) | {"the provider, which limits requests, until …"}

    assert set(RunWait) == {*runs_command._WAITS, RunWait.PROVIDER}
    assert [one for one in explained if f'| "{one}" |' not in TROUBLESHOOTING] == []


def test_the_sizes_are_those_of_the_program() -> None:
    limits = ResourceLimits()
    command = f"{limits.memory_bytes // MIB:,} MiB"

    assert limits.memory_bytes == limits.disk_bytes
    assert f"Each may use {command} with all its processes" in SIZING
    assert f"A command may write {command}" in SIZING
    assert f"up to {shell._AT_ONCE} at a time, {shell._IN_ONE} of them of one workspace" in SIZING
    assert f"Up to {background_shell.MOST_HERE} background processes" in SIZING
    pool = Settings.model_fields["pool_size"].default
    assert (
        f"`TOOLCRIB_POOL_SIZE` ({pool}), a quarter of it for the system, {durable._CONNECTIONS} for the queue" in SIZING
    )
    assert f"opens up to {pool + pool // 4 + durable._CONNECTIONS + 1}:" in SIZING


def test_the_defaults_in_the_table_are_those_of_the_settings() -> None:
    rows = re.findall(r"^\| `TOOLCRIB_([A-Z_]+)` \| ([^|]+) \|", SIZING, re.MULTILINE)

    assert len(rows) > 5
    for name, shown in rows:
        default = Settings.model_fields[name.lower()].default
        assert shown == ("not set" if default is None else f"{default:,}"), name
    body = f"{Settings.model_fields['max_request_bytes'].default:,}"
    assert f"`TOOLCRIB_MAX_REQUEST_BYTES` ({body})" in PROXY


def test_the_measured_figures_are_in_the_pages_that_it_names() -> None:
    measured = "".join(
        (ROOT / "docs" / page).read_text(encoding="utf-8")
        for page in ("scale.md", "decisions/0009-runs.md", "decisions/0006-shell-transaction.md")
    )
    for here, there in (
        ("8 ms of a core for the server, 4.9 ms for PostgreSQL", "4.9 ms of a PostgreSQL core, 8 ms of a node core"),
        ("1.9 % of a core, 13 transactions a second", "| idle server, CPU | 3 % | 3.5 % | 1.9 % |"),
        ("13 transactions a second", "| 13 transactions a second |"),
        ("0.18 to 0.2 ms of a core", "A word costs the server 0.18 to 0.2 ms"),
        ("| 21 to 23 ms |", "| 21 to 23 ms |"),
        ("144 to 169 kB of WAL", "| WAL of a task, alone | 150 kB | 144, 147 kB"),
        ("144 to 169 kB of WAL", "147 to 169 kB"),
    ):
        assert here in SIZING
        assert there in measured


@pytest.mark.parametrize("sample", ["deploy/proxy/Caddyfile", "deploy/proxy/nginx.conf"])
def test_the_page_shows_the_samples_as_they_are(sample: str) -> None:
    (shown,) = [block.body for block in blocks_of("docs/operations/proxy.md") if block.title == sample]

    assert shown == (ROOT / sample).read_text(encoding="utf-8")
