"""Work in worker processes: results and errors come back, and excessive work is stopped."""

import asyncio
import math
import os
import re
import resource
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.wait_until import PATIENCE
from toolcrib.core.errors import (
    InvalidFrontmatter,
    MemoryLimitExceeded,
    TimeLimitExceeded,
    TooCostly,
    WorkerAnswerLost,
    WorkerDied,
)
from toolcrib.core.strict_json import check_json, strict_json
from toolcrib.policy.agent_definition import plain_rules_from_yaml
from toolcrib.policy.json_schema import flaw_in_schema_text, flaw_in_texts
from toolcrib.runtime.worker_answers import AnswerNotAsDeclared, rebuild_for
from toolcrib.runtime.worker_pool import AT_ONCE, in_worker
from toolcrib.tools.tool_matches import rank_tools
from toolcrib.websearch.page_text import page_text
from toolcrib.workspace.packages.package_archive import read_archive_parts
from toolcrib.workspace.text import frontmatter, plans
from toolcrib.workspace.text.edits import edited, edited_by_all
from toolcrib.workspace.text.frontmatter_patch import patched
from toolcrib.workspace.text.hunks import page_of_change, revert_hunks, split_hunks
from toolcrib.workspace.text.skills import parse_skills
from toolcrib.workspace.text.text_diff import unified, unified_within

ENDLESS = 10**9


async def test_plain_values_round_trip() -> None:
    fields = await in_worker(frontmatter.fields_of, b"---\ntitle: x\nnumbers: [1, 2.5, null, true]\n---\n")

    assert fields == {"title": "x", "numbers": [1, 2.5, None, True]}


async def test_a_toolcrib_error_is_raised_in_the_caller() -> None:
    with pytest.raises(InvalidFrontmatter, match="Fix it with `edit`"):
        await in_worker(frontmatter.fields_of, b"---\n[\n---\n")


async def test_work_that_computes_too_long_is_stopped_and_the_next_runs() -> None:
    used = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    with pytest.raises(TimeLimitExceeded, match="1 s of computing"):
        await in_worker(math.factorial, ENDLESS, seconds=1)

    assert resource.getrusage(resource.RUSAGE_SELF).ru_utime - used < 1, "It computed in this process."
    assert await in_worker(frontmatter.fields_of, b"---\na: 1\n---\n") == {"a": 1}


async def test_work_that_needs_too_much_memory_is_an_error() -> None:
    with pytest.raises(MemoryLimitExceeded, match="1,024 MiB"):
        await in_worker(bytes, 4 << 30)


async def test_an_answer_that_is_too_large_to_be_sent_exceeds_the_memory_limit() -> None:
    with pytest.raises(MemoryLimitExceeded):
        await in_worker(bytes, 700 << 20)


@pytest.fixture
def logged() -> Iterator[list[Any]]:
    """The events of the log."""
    with capture_logs() as events:
        yield events


async def test_named_tuples_come_back_as_declared() -> None:
    before, after = (b"".join(b"line %d\n" % n for n in range(300)) for _ in range(2))
    after = after.replace(b"line 7\n", b"seven\n")

    assert await in_worker(split_hunks, before, after) == split_hunks(before, after)


async def test_a_worker_that_ends_by_itself_is_told_as_a_failure_of_the_server(logged: list[Any]) -> None:
    for end, how in ((partial(os._exit, 3), "exit status 3"), (os.abort, "SIGABRT")):
        logged.clear()
        with pytest.raises(WorkerDied, match="failure of the server") as failure:
            await in_worker(end)
        assert how in failure.value.message
        assert not isinstance(failure.value, TooCostly)
        assert [(one["event"], one["ended"]) for one in logged] == [("worker.died", how), ("worker.died_again", how)]
        assert ("Fatal Python error: Aborted" in logged[-1]["stack"]) is (end is os.abort)
    assert await in_worker(math.factorial, 3) == 6


async def test_work_whose_worker_is_killed_from_outside_is_repeated(tmp_path: Path) -> None:
    mark = tmp_path / "killed"
    kill_once = f"import os; os.path.exists({str(mark)!r}) or (os.mkdir({str(mark)!r}), os.kill(os.getpid(), 9))"

    await in_worker(exec, kill_once)

    assert mark.exists()


async def test_a_result_that_cannot_be_sent_is_a_named_failure_and_the_worker_goes_on(logged: list[Any]) -> None:
    worker = await in_worker(os.getpid)
    for broken in (partial(re.compile, "a"), partial(eval, "[[{'a': object()}]]")):
        with pytest.raises(WorkerAnswerLost, match="defect of the server"):
            await in_worker(broken)
    # A busy machine is logged, too.
    lost = [event for event in logged if event["event"].startswith("worker.")]
    assert [event["event"] for event in lost] == ["worker.answer_lost"] * 2
    assert lost[1]["what"] == "builtins.object"
    # Not replaced by another, and not a zombie.
    assert Path(f"/proc/{worker}/cmdline").read_bytes()


@pytest.mark.parametrize("answer", [None, ("one", 1, "text"), (1, 1), [1, 1, "text"]])
def test_a_result_that_is_not_what_its_function_declares_is_not_taken(answer: Any) -> None:
    with pytest.raises(AnswerNotAsDeclared):
        rebuild_for(unified)(answer)


WORK: tuple[Callable[..., Any], ...] = (
    check_json,
    edited,
    edited_by_all,
    flaw_in_schema_text,
    flaw_in_texts,
    frontmatter.fields_of,
    page_of_change,
    page_text,
    parse_skills,
    patched,
    plain_rules_from_yaml,
    plans.composed,
    plans.parsed,
    rank_tools,
    read_archive_parts,
    revert_hunks,
    split_hunks,
    strict_json,
    unified,
    unified_within,
)


@pytest.mark.parametrize("work", WORK)
def test_all_work_declares_what_a_worker_can_answer(work: Callable[..., Any]) -> None:
    rebuild_for(work)


async def test_an_internal_error_is_no_tool_error() -> None:
    with pytest.raises(RuntimeError, match="ValueError"):
        await in_worker(math.factorial, -1)


async def test_output_of_a_worker_is_not_its_result() -> None:
    await in_worker(print, "done")

    assert await in_worker(math.factorial, 3) == 6


async def test_a_worker_imports_nothing_from_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "difflib.py").write_text("raise SystemExit('planted')")
    (tmp_path / "toolcrib.py").write_text("raise SystemExit('planted')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    with pytest.raises(WorkerDied):
        await in_worker(os.abort)
    # In a new process: the old one has ended.
    added, removed, _ = await in_worker(unified, b"a\n", b"b\n", ("x", "y"))

    assert (added, removed) == (1, 1)


async def test_a_cancelled_call_frees_its_worker() -> None:
    calls = [asyncio.create_task(in_worker(math.factorial, ENDLESS, seconds=PATIENCE)) for _ in range(AT_ONCE)]
    # Each has a worker, or waits for one, after the loop has run.
    for _ in range(10):
        await asyncio.to_thread(lambda: None)
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)

    async with asyncio.timeout(PATIENCE):
        assert await in_worker(frontmatter.fields_of, b"---\na: 1\n---\n") == {"a": 1}
