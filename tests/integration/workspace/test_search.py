"""Searching through the gate: matches, their order, time limits, and what agents must not find."""

import os
import random
import shutil
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.adversarial.test_races import swapping
from tests.integration.conftest import Crib
from toolcrib.core.callers import Caller
from toolcrib.core.errors import BadArguments
from toolcrib.core.ids import CallId, new_id
from toolcrib.policy.path_guard import PathGuard
from toolcrib.workspace.fs.ripgrep import Ripgrep
from toolcrib.workspace.search.grep import MOST_MATCHES, GrepMatches, GrepQuery, GrepSearch
from toolcrib.workspace.tree import WorkspaceServices, WorkspaceTree


async def found(crib: Crib, _caller: Caller | None = None, /, **arguments: object) -> list[tuple[str, int]]:
    outcome = await crib.call("grep", _caller, **arguments)
    assert outcome.succeeded, outcome.error
    return [(match["path"], match["line_number"]) for match in outcome.result["matches"]]


async def asked(
    crib: Crib, question: GrepQuery, *, seconds: float, shelves: WorkspaceServices | None = None
) -> GrepMatches:
    caller = replace(crib.caller, call_id=CallId(new_id()))
    tree = WorkspaceTree(shelves or crib.engine.shelves, caller, PathGuard(caller, "grep"))
    return await GrepSearch(tree, question, seconds=seconds).answer()


def put(crib: Crib, path: str, body: bytes) -> Path:
    file = crib.project / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(body)
    return file


# Order


@pytest.mark.req("TL-6", part="order")
@pytest.mark.parametrize("limit", [0, 7, 50])
@pytest.mark.parametrize("pattern", ["x", r"(x)\1?"], ids=["ripgrep", "postgresql"])
async def test_matches_are_ordered_by_path_folder_by_folder_then_by_line(crib: Crib, limit: int, pattern: str) -> None:
    paths = ["/a/b.txt", "/a.txt", "/a-b/c.txt", "/z", "/a/a/z.txt", "/é.txt"]
    for path in paths:
        put(crib, path, b"x\ny\nx\n")

    matches = await found(crib, pattern=pattern, limit=limit)

    expected = [(path, line) for path in sorted(paths, key=lambda path: path.split("/")) for line in (1, 3)]
    assert matches == expected[: limit or None]


@pytest.mark.req("TL-6", part="order")
async def test_page_is_the_beginning_of_the_complete_result_for_every_engine(crib: Crib) -> None:
    for number in range(2_000):
        put(crib, f"/d{number % 40}/f{number}.txt", b"needle\n" if number % 90 == 3 else b"hay\n" * 20)

    everything = await found(crib, pattern="needle", limit=0)

    assert len(everything) == 23
    assert await found(crib, pattern="needle", limit=5) == everything[:5]
    assert await found(crib, pattern="needle", limit=50) == everything


# What is searched


@pytest.mark.req("TL-6", part="every text file")
async def test_hidden_and_ignored_files_are_searched_and_links_special_files_and_temporaries_are_not(
    crib: Crib, tmp_path: Path
) -> None:
    put(crib, ".gitignore", b"ignored\n")
    put(crib, "ignored/a.txt", b"needle\n")
    put(crib, ".hidden/b.txt", b"needle\n")
    put(crib, ".rgignore", b"*\n")
    put(crib, ".~toolcrib-0123456789abcdef.tmp", b"needle\n")
    put(crib, "new\nline.txt", b"needle\n")
    (tmp_path / "outside.txt").write_text("needle\n")
    (crib.project / "link.txt").symlink_to(tmp_path / "outside.txt")
    (crib.project / "folder").symlink_to(tmp_path)
    os.mkfifo(crib.project / "fifo")
    put(crib, "binary", b"\0needle\n")
    put(crib, "nearly-binary", b"x" * 9_000 + b"\nneedle\n\0\nneedle\n")

    assert await found(crib, pattern="needle") == [
        ("/.hidden/b.txt", 1),
        ("/ignored/a.txt", 1),
        ("/nearly-binary", 2),
        ("/nearly-binary", 4),
    ]


@pytest.mark.req("TL-6", part="every text file")
async def test_pattern_is_never_parsed_as_an_option(crib: Crib) -> None:
    put(crib, "a.txt", b"--files -e --pre=cat\n")

    assert await found(crib, pattern="--files") == [("/a.txt", 1)]
    assert await found(crib, pattern="--pre=cat", path_pattern="*--help") == []


async def test_long_lines_are_found_and_truncated(crib: Crib) -> None:
    put(crib, "min.js", b"a" * 10_000 + b"needle" + b"b" * 10_000 + b"\nshort\n")

    [match] = (await crib.result("grep", pattern="needle"))["matches"]

    assert match["line_number"] == 1
    assert match["line_text"].endswith("[18,006 more characters]")
    assert await found(crib, pattern=r"needle\w+a$") == []


async def test_files_larger_than_the_read_limit_are_searched(crib: Crib) -> None:
    put(crib, "large.log", b"hay hay hay\n" * 1_000_000 + b"needle\n")

    assert await found(crib, pattern="needle") == [("/large.log", 1_000_001)]


@pytest.mark.req("TL-6", part="what is committed")
async def test_content_that_is_committed_and_not_yet_on_disk_is_searched(crib: Crib) -> None:
    await crib.result("write", path="/a.txt", content="new text\n")
    async with crib.database.as_system() as connection:
        await connection.execute(
            """
            insert into toolcrib.pending_applies (workspace_id, file_id)
            select workspace_id, id from toolcrib.files where workspace_id = %s and path = '/a.txt'
            """,
            (crib.caller.workspace_id,),
        )
    put(crib, "a.txt", b"old text\n")

    assert await found(crib, pattern="text") == [("/a.txt", 1)]
    assert await found(crib, pattern="old") == []
    assert await found(crib, pattern="new") == [("/a.txt", 1)]


# Time limits


@pytest.mark.req("TL-6", part="time limit")
async def test_hostile_pattern_ends_at_its_time_limit_and_reports_it(crib: Crib) -> None:
    noise = random.Random(3)
    put(crib, "a.txt", b"first\n")
    put(crib, "b.txt", "".join(noise.choice("ab") for _ in range(3_000)).encode() + b"c\n")
    hostile = GrepQuery(r"^(.*)(.*)(.*)\1\2\3c$|first", limit=50)
    started = time.monotonic()

    answer = await asked(crib, hostile, seconds=0.5)

    assert time.monotonic() - started < 60
    assert answer.timed_out


@pytest.mark.req("TL-6", part="same matches")
async def test_pattern_that_ripgrep_rejects_is_searched_by_postgresql(crib: Crib, tmp_path: Path) -> None:
    put(crib, "a.txt", b"needle\nhay\n")
    program = tmp_path / "rg"
    program.write_text(
        f"""#!/bin/sh
        case "$*" in
            *"--regexp= --"*) exec {shutil.which("rg")} "$@" ;;
            *) echo "Compiled regex exceeds size limit" >&2; exit 2 ;;
        esac
        """
    )
    program.chmod(0o755)
    shelves = replace(crib.engine.shelves, ripgrep=Ripgrep(str(program)))

    for limit in (50, MOST_MATCHES):
        answer = await asked(crib, GrepQuery("NEEDLE", limit=limit), seconds=8, shelves=shelves)
        assert [(match.place.path, match.number) for match in answer.matches] == [("/a.txt", 1)]


@pytest.mark.parametrize("pattern", ["(", "a**", "[z-a]", r"\q", "a{2,1}"])
async def test_invalid_pattern_is_rejected_with_the_reason(crib: Crib, pattern: str) -> None:
    outcome = await crib.call("grep", pattern=pattern)

    assert isinstance(outcome.error, BadArguments)
    assert "Invalid regular expression" in outcome.error.fields["pattern"]


async def test_excess_matches_are_truncated_and_reported(crib: Crib, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a lower limit than ours, so that a busy machine finds them all in time."""
    most = 5_000
    for module in ("toolcrib.workspace.search.grep", "toolcrib.tools.files.grep"):
        monkeypatch.setattr(f"{module}.MOST_MATCHES", most)
    put(crib, "many.txt", b"x\n" * (most + 10))

    result = await crib.result("grep", pattern="x", limit=0)

    assert len(result["matches"]) == most
    assert result["truncated"] is True
    assert "5,000" in result["hint"]


# What agents must not find


@pytest.mark.req("WS-4", part="grep")
@pytest.mark.req("TL-6", part="protected names")
async def test_agent_finds_nothing_in_protected_files_and_gets_their_number(crib: Crib) -> None:
    put(crib, ".env", b"KEY=needle\n")
    put(crib, "conf/Secrets.txt", b"other\n")
    put(crib, "a.txt", b"needle\n")
    agent = await crib.agent()

    result = (await crib.call("grep", agent, pattern="needle|key|other")).result
    elsewhere = (await crib.call("grep", agent, pattern="needle", path_pattern="%.txt")).result

    assert [match["path"] for match in result["matches"]] == ["/a.txt"]
    # Matching or not: the number reveals nothing about their contents.
    assert result["files_denied"] == 2
    assert elsewhere["files_denied"] == 1
    assert (await crib.call("grep", agent, pattern="nowhere")).result["files_denied"] == 2
    assert await found(crib, pattern="needle") == [("/.env", 1), ("/a.txt", 1)]


@pytest.mark.req("WS-4", part="grep")
async def test_agent_finds_nothing_in_a_hard_link_to_a_protected_file(crib: Crib) -> None:
    env = put(crib, ".env", b"KEY=needle\n")
    os.link(env, crib.project / "notes.txt")
    agent = await crib.agent()

    assert await found(crib, agent, pattern="needle") == []


@pytest.mark.req("TL-6", part="permissions")
async def test_agent_finds_only_in_paths_that_it_may_read(crib: Crib) -> None:
    put(crib, "src/a.txt", b"needle\n")
    put(crib, "lib/a.txt", b"needle\n")
    agent = await crib.agent(tool_permissions={"grep": {"allowed": True, "paths": ["src/**"]}})

    assert await found(crib, agent, pattern="needle") == [("/src/a.txt", 1)]


@pytest.mark.req("WS-3", part="races")
@pytest.mark.req("TL-6", part="confinement")
async def test_links_swapped_during_a_search_leak_nothing(crib: Crib, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    for number in range(20):
        (outside / f"{number}.txt").write_text("needle SECRET\n")
        put(crib, f"folder/{number}.txt", b"needle inside\n")
    (crib.project / "link").symlink_to(outside)
    program = tmp_path / "swapper"
    source = Path(__file__).parents[2] / "adversarial" / "swapper.c"
    subprocess.run(["cc", "-O2", "-o", program, source], check=True)

    texts: set[str] = set()
    with swapping(program, crib.project / "folder", crib.project / "link"):
        for limit in (0, 50) * 60:
            result = await crib.result("grep", pattern="needle", limit=limit)
            texts |= {match["line_text"] for match in result["matches"]}

    assert texts == {"needle inside"}


# Names


@pytest.mark.req("TL-4", part="find")
async def test_page_of_names_is_the_beginning_of_the_complete_result(crib: Crib) -> None:
    for path in ("/a/b.txt", "/a.txt", "/a-b/c.txt", "/z.txt"):
        put(crib, path, b"")

    whole = [match["path"] for match in (await crib.result("find", limit=0))["matches"]]

    assert whole == ["/a", "/a/b.txt", "/a-b", "/a-b/c.txt", "/a.txt", "/z.txt"]
    assert [match["path"] for match in (await crib.result("find", limit=3))["matches"]] == whole[:3]
    assert [match["path"] for match in (await crib.result("glob", pattern="*", limit=4))["matches"]] == whole[:4]


@pytest.mark.req("TL-4", part="limits")
@pytest.mark.parametrize("call", [("ls", {}), ("find", {}), ("glob", {"pattern": "*"}), ("grep", {"pattern": "x"})])
async def test_no_limit_is_too_large(crib: Crib, call: tuple[str, dict[str, str]]) -> None:
    put(crib, "a.txt", b"x\n")
    tool, arguments = call

    result = await crib.result(tool, limit=10**30, **arguments)

    assert len(result["entries" if tool == "ls" else "matches"]) == 1


@pytest.mark.req("TL-4", part="find")
async def test_unstorable_names_and_temporaries_are_skipped(crib: Crib) -> None:
    put(crib, "new\nline/a.txt", b"")
    put(crib, "back\\slash.txt", b"")
    put(crib, ".~toolcrib-0123456789abcdef.tmp", b"")
    (crib.project / os.fsdecode(b"\xff.txt")).touch()
    os.mkfifo(crib.project / "fifo")
    put(crib, "a.txt", b"")

    for call in ({"tool": "find"}, {"tool": "glob", "pattern": "*"}):
        result = await crib.result(call.pop("tool"), **call)
        assert [match["path"] for match in result["matches"]] == ["/a.txt"]


@pytest.mark.req("WS-4", part="names are shown")
async def test_agent_sees_protected_names_without_their_content(crib: Crib) -> None:
    put(crib, ".env", b"KEY=needle\n")
    agent = await crib.agent()

    assert [m["path"] for m in (await crib.call("glob", agent, pattern=".env")).result["matches"]] == ["/.env"]
    assert [m["path"] for m in (await crib.call("find", agent, name=".e*")).result["matches"]] == ["/.env"]


@pytest.mark.req("TL-4", part="find")
async def test_find_distinguishes_types_by_the_history(crib: Crib) -> None:
    await crib.result("write", path="/a.canvas", content="x", file_type="canvas")
    await crib.result("write", path="/b.txt", content="x")
    put(crib, "c.txt", b"x")

    async def names(file_type: str) -> list[str]:
        return [match["name"] for match in (await crib.result("find", file_type=file_type))["matches"]]

    assert await names("canvas") == ["a.canvas"]
    assert await names("document") == ["b.txt", "c.txt"]
    assert await names("folder") == []
