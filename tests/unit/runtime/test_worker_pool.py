"""Work in worker processes: results and errors come back, and excessive work is stopped."""

import asyncio
import math
import resource
from pathlib import Path

import pytest

from tests.wait_until import PATIENCE
from toolcrib.core.errors import InvalidFrontmatter, TooCostly
from toolcrib.runtime.worker_pool import AT_ONCE, in_worker
from toolcrib.workspace.text import frontmatter
from toolcrib.workspace.text.text_diff import unified

pytestmark = pytest.mark.req("SY-1", part="workers")

ENDLESS = 10**9


async def test_plain_values_round_trip() -> None:
    fields = await in_worker(frontmatter.fields_of, b"---\ntitle: x\nnumbers: [1, 2.5, null, true]\n---\n")

    assert fields == {"title": "x", "numbers": [1, 2.5, None, True]}


async def test_a_toolcrib_error_is_raised_in_the_caller() -> None:
    with pytest.raises(InvalidFrontmatter, match="Fix it with `edit`"):
        await in_worker(frontmatter.fields_of, b"---\n[\n---\n")


async def test_work_that_computes_too_long_is_stopped_and_the_next_runs() -> None:
    used = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    with pytest.raises(TooCostly):
        await in_worker(math.factorial, ENDLESS, seconds=1)

    assert resource.getrusage(resource.RUSAGE_SELF).ru_utime - used < 1, "It computed in this process."
    assert await in_worker(frontmatter.fields_of, b"---\na: 1\n---\n") == {"a": 1}


async def test_work_that_needs_too_much_memory_is_an_error() -> None:
    with pytest.raises(TooCostly, match="memory"):
        await in_worker(bytes, 4 << 30)


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

    with pytest.raises(TooCostly):
        await in_worker(math.factorial, ENDLESS, seconds=1)
    # In a new process: the old one was stopped.
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
