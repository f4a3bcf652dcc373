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
from tests.integration.conftest import WorkspaceFixture
from toolcrib.core.callers import Caller
from toolcrib.core.errors import BadArguments
from toolcrib.core.ids import CallId, new_id
from toolcrib.policy.authorization import PathGuard
from toolcrib.workspace.fs.ripgrep import Ripgrep
from toolcrib.workspace.search.grep import MOST_MATCHES, GrepMatches, GrepQuery, GrepSearch
from toolcrib.workspace.tree import WorkspaceTree
from toolcrib.workspace.workspace_services import WorkspaceServices


async def found(
    workspace: WorkspaceFixture, _caller: Caller | None = None, /, **arguments: object
) -> list[tuple[str, int]]:
    outcome = await workspace.call("grep", _caller, **arguments)
    assert outcome.succeeded, outcome.error
    return [(match["path"], match["line_number"]) for match in outcome.result["matches"]]


async def asked(
    workspace: WorkspaceFixture,
    question: GrepQuery,
    *,
    seconds: float,
    workspace_services: WorkspaceServices | None = None,
) -> GrepMatches:
    caller = replace(workspace.caller, call_id=CallId(new_id()))
    services = workspace_services or workspace.engine.workspace_services
    tree = WorkspaceTree(services, caller, PathGuard(caller, "grep"))
    return await GrepSearch(tree, question, seconds=seconds).answer()


def put(workspace: WorkspaceFixture, path: str, body: bytes) -> Path:
    file = workspace.project / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(body)
    return file


# Order


@pytest.mark.parametrize("limit", [0, 7, 50])
@pytest.mark.parametrize("pattern", ["x", r"(x)\1?"], ids=["ripgrep", "postgresql"])
async def test_matches_are_ordered_by_path_folder_by_folder_then_by_line(
    workspace: WorkspaceFixture, limit: int, pattern: str
) -> None:
    paths = ["/a/b.txt", "/a.txt", "/a-b/c.txt", "/z", "/a/a/z.txt", "/é.txt"]
    for path in paths:
        put(workspace, path, b"x\ny\nx\n")

    matches = await found(workspace, pattern=pattern, limit=limit)

    expected = [(path, line) for path in sorted(paths, key=lambda path: path.split("/")) for line in (1, 3)]
    assert matches == expected[: limit or None]


async def test_page_is_the_beginning_of_the_complete_result_for_every_engine(workspace: WorkspaceFixture) -> None:
    for number in range(2_000):
        put(workspace, f"/d{number % 40}/f{number}.txt", b"needle\n" if number % 90 == 3 else b"hay\n" * 20)

    everything = await found(workspace, pattern="needle", limit=0)

    assert len(everything) == 23
    assert await found(workspace, pattern="needle", limit=5) == everything[:5]
    assert await found(workspace, pattern="needle", limit=50) == everything


# What is searched


async def test_hidden_and_ignored_files_are_searched_and_links_special_files_and_temporaries_are_not(
    workspace: WorkspaceFixture, tmp_path: Path
) -> None:
    put(workspace, ".gitignore", b"ignored\n")
    put(workspace, "ignored/a.txt", b"needle\n")
    put(workspace, ".hidden/b.txt", b"needle\n")
    put(workspace, ".rgignore", b"*\n")
    put(workspace, ".~toolcrib-0123456789abcdef.tmp", b"needle\n")
    put(workspace, "new\nline.txt", b"needle\n")
    (tmp_path / "outside.txt").write_text("needle\n")
    (workspace.project / "link.txt").symlink_to(tmp_path / "outside.txt")
    (workspace.project / "folder").symlink_to(tmp_path)
    os.mkfifo(workspace.project / "fifo")
    put(workspace, "binary", b"\0needle\n")
    put(workspace, "nearly-binary", b"x" * 9_000 + b"\nneedle\n\0\nneedle\n")

    assert await found(workspace, pattern="needle", include_ignored=True) == [
        ("/.hidden/b.txt", 1),
        ("/ignored/a.txt", 1),
        ("/nearly-binary", 2),
        ("/nearly-binary", 4),
    ]


async def test_pattern_is_never_parsed_as_an_option(workspace: WorkspaceFixture) -> None:
    put(workspace, "a.txt", b"--files -e --pre=cat\n")

    assert await found(workspace, pattern="--files") == [("/a.txt", 1)]
    assert await found(workspace, pattern="--pre=cat", path_pattern="*--help") == []


async def test_long_lines_are_found_and_truncated(workspace: WorkspaceFixture) -> None:
    put(workspace, "min.js", b"a" * 10_000 + b"needle" + b"b" * 10_000 + b"\nshort\n")

    [match] = (await workspace.result("grep", pattern="needle"))["matches"]

    assert match["line_number"] == 1
    assert match["line_text"].endswith("[18,006 more characters]")
    assert await found(workspace, pattern=r"needle\w+a$") == []


async def test_files_larger_than_the_read_limit_are_searched(workspace: WorkspaceFixture) -> None:
    put(workspace, "large.log", b"hay hay hay\n" * 1_000_000 + b"needle\n")

    assert await found(workspace, pattern="needle") == [("/large.log", 1_000_001)]


async def test_content_that_is_committed_and_not_yet_on_disk_is_searched(workspace: WorkspaceFixture) -> None:
    await workspace.result("write", path="/a.txt", content="new text\n")
    async with workspace.database.as_system() as connection:
        await connection.execute(
            """
            insert into toolcrib.pending_applies (workspace_id, file_id)
            select workspace_id, id from toolcrib.files where workspace_id = %s and path = '/a.txt'
            """,
            (workspace.caller.workspace_id,),
        )
    put(workspace, "a.txt", b"old text\n")

    assert await found(workspace, pattern="text") == [("/a.txt", 1)]
    assert await found(workspace, pattern="old") == []
    assert await found(workspace, pattern="new") == [("/a.txt", 1)]


# Time limits


async def test_hostile_pattern_ends_at_its_time_limit_and_reports_it(workspace: WorkspaceFixture) -> None:
    noise = random.Random(3)
    put(workspace, "a.txt", b"first\n")
    put(workspace, "b.txt", "".join(noise.choice("ab") for _ in range(3_000)).encode() + b"c\n")
    hostile = GrepQuery(r"^(.*)(.*)(.*)\1\2\3c$|first", limit=50)
    started = time.monotonic()

    answer = await asked(workspace, hostile, seconds=0.5)

    assert time.monotonic() - started < 60
    assert answer.timed_out


async def test_pattern_that_ripgrep_rejects_is_searched_by_postgresql(
    workspace: WorkspaceFixture, tmp_path: Path
) -> None:
    put(workspace, "a.txt", b"needle\nhay\n")
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
    workspace_services = replace(workspace.engine.workspace_services, ripgrep=Ripgrep(str(program)))

    for limit in (50, MOST_MATCHES):
        answer = await asked(
            workspace, GrepQuery("NEEDLE", limit=limit), seconds=8, workspace_services=workspace_services
        )
        assert [(match.path.path, match.number) for match in answer.matches] == [("/a.txt", 1)]


@pytest.mark.parametrize("pattern", ["(", "a**", "[z-a]", r"\q", "a{2,1}"])
async def test_invalid_pattern_is_rejected_with_the_reason(workspace: WorkspaceFixture, pattern: str) -> None:
    outcome = await workspace.call("grep", pattern=pattern)

    assert isinstance(outcome.error, BadArguments)
    assert "Invalid regular expression" in outcome.error.fields["pattern"]


async def test_excess_matches_are_truncated_and_reported(
    workspace: WorkspaceFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a lower limit than ours, so that a busy machine finds them all in time."""
    most = 5_000
    for module in ("toolcrib.workspace.search.grep", "toolcrib.tools.files.grep"):
        monkeypatch.setattr(f"{module}.MOST_MATCHES", most)
    put(workspace, "many.txt", b"x\n" * (most + 10))

    result = await workspace.result("grep", pattern="x", limit=0)

    assert len(result["matches"]) == most
    assert result["truncated"] is True
    assert "5,000" in result["hint"]


# What agents must not find


async def test_agent_finds_nothing_in_protected_files_and_gets_their_number(workspace: WorkspaceFixture) -> None:
    put(workspace, ".env", b"KEY=needle\n")
    put(workspace, "conf/Secrets.txt", b"other\n")
    put(workspace, "a.txt", b"needle\n")
    agent = await workspace.agent()

    result = (await workspace.call("grep", agent, pattern="needle|key|other")).result
    elsewhere = (await workspace.call("grep", agent, pattern="needle", path_pattern="%.txt")).result

    assert [match["path"] for match in result["matches"]] == ["/a.txt"]
    # Matching or not: the number reveals nothing about their contents.
    assert result["files_denied"] == 2
    assert elsewhere["files_denied"] == 1
    assert (await workspace.call("grep", agent, pattern="nowhere")).result["files_denied"] == 2
    assert await found(workspace, pattern="needle") == [("/.env", 1), ("/a.txt", 1)]


async def test_agent_finds_nothing_in_a_hard_link_to_a_protected_file(workspace: WorkspaceFixture) -> None:
    env = put(workspace, ".env", b"KEY=needle\n")
    os.link(env, workspace.project / "notes.txt")
    agent = await workspace.agent()

    assert await found(workspace, agent, pattern="needle") == []


async def test_agent_finds_only_in_paths_that_it_may_read(workspace: WorkspaceFixture) -> None:
    put(workspace, "src/a.txt", b"needle\n")
    put(workspace, "lib/a.txt", b"needle\n")
    agent = await workspace.agent(tool_permissions={"grep": {"allowed": True, "paths": ["src/**"]}})

    assert await found(workspace, agent, pattern="needle") == [("/src/a.txt", 1)]


@pytest.mark.long
async def test_links_swapped_during_a_search_leak_nothing(workspace: WorkspaceFixture, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    for number in range(20):
        (outside / f"{number}.txt").write_text("needle SECRET\n")
        put(workspace, f"folder/{number}.txt", b"needle inside\n")
    (workspace.project / "link").symlink_to(outside)
    program = tmp_path / "swapper"
    source = Path(__file__).parents[2] / "adversarial" / "swapper.c"
    subprocess.run(["cc", "-O2", "-o", program, source], check=True)

    texts: set[str] = set()
    with swapping(program, workspace.project / "folder", workspace.project / "link"):
        for limit in (0, 50) * 60:
            result = await workspace.result("grep", pattern="needle", limit=limit)
            texts |= {match["line_text"] for match in result["matches"]}

    assert texts == {"needle inside"}


# Names


async def test_page_of_names_is_the_beginning_of_the_complete_result(workspace: WorkspaceFixture) -> None:
    for path in ("/a/b.txt", "/a.txt", "/a-b/c.txt", "/z.txt"):
        put(workspace, path, b"")

    whole = [match["path"] for match in (await workspace.result("find", limit=0))["matches"]]

    assert whole == ["/a", "/a/b.txt", "/a-b", "/a-b/c.txt", "/a.txt", "/z.txt"]
    assert [match["path"] for match in (await workspace.result("find", limit=3))["matches"]] == whole[:3]
    assert [match["path"] for match in (await workspace.result("glob", pattern="*", limit=4))["matches"]] == whole[:4]


@pytest.mark.parametrize("call", [("ls", {}), ("find", {}), ("glob", {"pattern": "*"}), ("grep", {"pattern": "x"})])
async def test_no_limit_is_too_large(workspace: WorkspaceFixture, call: tuple[str, dict[str, str]]) -> None:
    put(workspace, "a.txt", b"x\n")
    tool, arguments = call

    result = await workspace.result(tool, limit=10**30, **arguments)

    assert len(result["entries" if tool == "ls" else "matches"]) == 1


async def test_unstorable_names_and_temporaries_are_skipped(workspace: WorkspaceFixture) -> None:
    put(workspace, "new\nline/a.txt", b"")
    put(workspace, "back\\slash.txt", b"")
    put(workspace, ".~toolcrib-0123456789abcdef.tmp", b"")
    (workspace.project / os.fsdecode(b"\xff.txt")).touch()
    os.mkfifo(workspace.project / "fifo")
    put(workspace, "a.txt", b"")

    for call in ({"tool": "find"}, {"tool": "glob", "pattern": "*"}):
        result = await workspace.result(call.pop("tool"), **call)
        assert [match["path"] for match in result["matches"]] == ["/a.txt"]


async def test_agent_sees_protected_names_without_their_content(workspace: WorkspaceFixture) -> None:
    put(workspace, ".env", b"KEY=needle\n")
    agent = await workspace.agent()

    assert [m["path"] for m in (await workspace.call("glob", agent, pattern=".env")).result["matches"]] == ["/.env"]
    assert [m["path"] for m in (await workspace.call("find", agent, name=".e*")).result["matches"]] == ["/.env"]


async def test_find_distinguishes_types_by_the_history(workspace: WorkspaceFixture) -> None:
    await workspace.result("write", path="/a.canvas", content="x", file_type="canvas")
    await workspace.result("write", path="/b.txt", content="x")
    put(workspace, "c.txt", b"x")

    async def names(file_type: str) -> list[str]:
        return [match["name"] for match in (await workspace.result("find", file_type=file_type))["matches"]]

    assert await names("canvas") == ["a.canvas"]
    assert await names("document") == ["b.txt", "c.txt"]
    assert await names("folder") == []
