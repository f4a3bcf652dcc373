"""Cases 71 to 80: commands that use up resources, flood the output, or do not end."""

import os
from pathlib import Path
from time import monotonic

import pytest

from tests.integration.sandbox.sandbox_fixture import Stand, python
from tests.wait_until import PATIENCE, growing
from toolcrib.core.errors import TooLarge
from toolcrib.sandbox.command import CommandResult, SandboxCommand
from toolcrib.sandbox.resource_limits import MIB, ResourceLimits, descendants

# From the excess to the end. The monitor polls every fifth of a second; the rest is for a busy machine.
SOON = 30.0


@pytest.fixture
async def stand(tmp_path: Path) -> Stand:
    stand = Stand(tmp_path)
    await stand.sandbox.probe()  # from here on the fork server runs, and stays
    return stand


def ours() -> int:
    """Return how many processes descend from this one, itself included."""
    return len(list(descendants(os.getpid())))


async def ended_soon(stand: Stand, program: str, limits: ResourceLimits) -> str:
    """Run a bomb that prints when it starts, and bound the time from there to its end."""
    began: list[float] = []
    command = SandboxCommand(python(program), seconds=PATIENCE, limits=limits)
    async with stand.begin() as view:
        result = await view.run(command, lambda _: began.append(monotonic()))
        ended = monotonic()
    assert not result.timed_out
    assert began, result.output.text
    assert ended - began[0] < SOON
    return result.stopped or f"exit {result.exit_code}: {result.output.text}"


@pytest.mark.parametrize(
    "bomb", ["b() { b | b & }; b; while :; do :; done", "while :; do sh -c 'exec sleep 60' & done"]
)
async def test_71_fork_bomb_is_bounded_and_leaves_nothing(stand: Stand, bomb: str) -> None:
    before = ours()
    most = 0

    def count(_: str) -> None:
        nonlocal most
        most = max(most, ours())

    result = await stand.run(SandboxCommand(f"echo up; {bomb}", seconds=2, limits=ResourceLimits(processes=48)), count)
    assert result.exit_code != 0
    # A starting process counts twice for a moment.
    assert most - before < 48 + 16 + 10
    assert ours() == before


async def test_72_memory_of_one_process_is_bounded(stand: Stand) -> None:
    program = "print('up', flush=True)\nheld = []\nwhile True: held.append(bytearray(1 << 20))"
    said = await ended_soon(stand, program, ResourceLimits(memory_bytes=128 * MIB))
    assert "MemoryError" in said or "memory" in said or "exit 137" in said


async def test_72_memory_of_many_processes_is_bounded(stand: Stand) -> None:
    program = """
import os, signal
print("up", flush=True)
for _ in range(16):
    if os.fork() == 0:
        held = bytearray(40 << 20)
        signal.pause()
signal.pause()
"""
    # The kernel may kill one of them and leave the others: then the time limit ends it.
    result = await stand.run(SandboxCommand(python(program), seconds=3, limits=ResourceLimits(memory_bytes=200 * MIB)))
    assert result.exit_code is None or result.exit_code == 137


@pytest.mark.parametrize("path", ["/tmp", "/dev/shm", "/home/agent", "/mnt/project"])
async def test_73_filling_writable_space_is_ended(stand: Stand, path: str) -> None:
    program = f"""
print("up", flush=True)
for number in range(1000):
    open("{path}/%d" % number, "wb").write(bytes(4 << 20))
"""
    assert await ended_soon(stand, program, ResourceLimits(disk_bytes=64 * MIB)) == "more than 64 MiB written"
    assert list(stand.staging.iterdir()) == []


async def test_73_one_file_cannot_grow_without_limit(stand: Stand) -> None:
    command = SandboxCommand("head -c 100M /dev/zero > big; ls -l big", limits=ResourceLimits(file_bytes=8 * MIB))
    said = await stand.said(command)
    assert "8388608" in said


@pytest.mark.parametrize("hide", [pytest.param("", marks=pytest.mark.long), "os.chmod('/mnt/project', 0o300)"])
async def test_74_inode_bomb_is_ended(stand: Stand, hide: str) -> None:
    program = f"""
import os
print("up", flush=True)
{hide}
for number in range(10_000_000):
    os.mkdir("/mnt/project/%d" % number)
"""
    stopped = await ended_soon(stand, program, ResourceLimits(entries=3_000))
    assert stopped in ("more than 3000 files and folders written", "too much written, in folders that it locked")


async def test_75_spinning_ends_at_the_time_limit(stand: Stand) -> None:
    before = ours()
    result = await stand.run(SandboxCommand("while :; do :; done & while :; do :; done", seconds=0.5))
    assert (result.timed_out, result.exit_code) == (True, None)
    assert result.seconds < 0.5 + SOON
    assert ours() == before


async def test_76_endless_output_is_truncated_and_counted(stand: Stand) -> None:
    result, shown = await endless(stand)
    assert result.timed_out
    assert len(result.output.head) + len(result.output.tail) == 100_000
    assert sum(map(len, shown)) < 1_100_000


async def endless(stand: Stand) -> tuple[CommandResult, list[str]]:
    """The result of a command that was ended after more output than is kept."""
    for seconds in growing(0.7):
        shown: list[str] = []
        result = await stand.run(SandboxCommand("yes toolcrib", seconds=seconds), shown.append)
        if result.dropped > 1_000_000:
            return result, shown
    raise AssertionError("Nothing was dropped.")


async def test_77_one_line_of_100_megabytes_costs_no_memory(stand: Stand) -> None:
    result = await stand.run("head -c 100000000 /dev/zero | tr '\\0' x; echo end")
    assert result.output.tail.endswith(b"xend\n")
    assert result.dropped == 100_000_004 - 100_000


@pytest.mark.parametrize(
    "child",
    [
        "sleep 600 &",
        "(setsid sleep 600 &) &",
        "setsid sh -c \"trap '' TERM HUP INT; (sleep 600; sleep 600) &\" &",
        "nohup sleep 600 > /dev/null 2>&1 < /dev/null & disown 2>/dev/null",
    ],
)
async def test_78_and_79_child_left_behind_neither_blocks_us_nor_survives(stand: Stand, child: str) -> None:
    before = ours()
    began = monotonic()
    result = await stand.run(f"{child}\n echo done")
    assert (result.exit_code, result.output.text) == (0, "done\n")
    assert monotonic() - began < SOON
    assert ours() == before


async def test_79_ignoring_signals_does_not_evade_the_time_limit(stand: Stand) -> None:
    before = ours()
    stubborn = (
        "trap '' TERM HUP INT QUIT; setsid sh -c 'trap \"\" TERM; while :; do :; done' & while :; do sleep 1; done"
    )
    result = await stand.run(SandboxCommand(stubborn, seconds=0.5))
    assert result.timed_out
    assert result.seconds < 0.5 + SOON
    assert ours() == before


async def test_80_archive_with_links_writes_nowhere_else(stand: Stand) -> None:
    canary = stand.folder / "canary"
    canary.write_text("untouched")
    program = f"""
import io, tarfile
with tarfile.open("bomb.tar", "w") as tar:
    link = tarfile.TarInfo("out"); link.type = tarfile.SYMTYPE; link.linkname = {str(stand.folder)!r}; tar.addfile(link)
    for name in ("out/canary", "../../../../{stand.folder}/canary", "/mnt/pkg/canary"):
        entry = tarfile.TarInfo(name); entry.size = 5; tar.addfile(entry, io.BytesIO(b"owned"))
"""
    await stand.run(f"{python(program).removeprefix('exec ')}\ntar -xPf bomb.tar; rm -f bomb.tar")
    assert canary.read_text() == "untouched"
    assert list(stand.shelf.iterdir()) == []


async def test_endless_folders_are_rejected_and_removed(stand: Stand) -> None:
    program = """
import os
for _ in range(1200):
    os.mkdir("d"); os.chdir("d")
os.chmod(".", 0)
"""
    async with stand.begin() as view:
        assert (await view.run(SandboxCommand(python(program)))).exit_code == 0
        with pytest.raises(TooLarge, match="deep"):
            await view.effect()
    assert list(stand.staging.iterdir()) == []
