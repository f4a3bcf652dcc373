"""The process that starts commands: one for each thread, replaced when it dies, ended with its thread."""

import asyncio
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.integration.sandbox.sandbox_fixture import SANDBOX, Stand
from toolcrib.core.errors import ToolFailed
from toolcrib.sandbox import fork_server
from toolcrib.sandbox.command import SandboxCommand
from toolcrib.sandbox.resource_limits import descendants
from toolcrib.sandbox.sandbox import Sandbox


@pytest.fixture
async def stand(tmp_path: Path) -> Stand:
    await SANDBOX.probe()
    return Stand(tmp_path)


def stagers() -> set[int]:
    """Return our fork servers; servers that other tests keep running have their own."""
    program, server = os.fsencode(fork_server.__file__), str(os.getpid()).encode()
    return {pid for pid in descendants(os.getpid()) if {program, server} <= set(_words(pid))}


def _words(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError):
        return []


async def test_one_fork_server_starts_all_commands(stand: Stand) -> None:
    before = stagers()
    assert len(before) == 1
    said = await asyncio.gather(*(stand.said(f"echo {number}") for number in range(4)))
    assert (said, stagers()) == ([f"{number}\n" for number in range(4)], before)


async def test_killed_fork_server_is_replaced_and_no_command_is_lost(stand: Stand) -> None:
    (killed,) = stagers()
    os.kill(killed, signal.SIGKILL)
    assert await stand.said("echo again") == "again\n"
    assert killed not in stagers()
    assert len(stagers()) == 1


async def test_command_outlives_the_fork_server_that_started_it(stand: Stand) -> None:
    """It is the server's child, not the fork server's."""

    def kill(_: str) -> None:
        for pid in stagers():
            os.kill(pid, signal.SIGKILL)

    assert (await stand.run("echo up; read _ < /dev/null; echo done", kill)).output.text == "up\ndone\n"


async def test_each_thread_has_its_own_fork_server_which_ends_with_it(tmp_path: Path, stand: Stand) -> None:
    before = stagers()
    seen: list[set[int]] = []

    def elsewhere() -> str:
        async def said() -> str:
            other = Stand(tmp_path / "other", Sandbox())
            text = await other.said("echo elsewhere")
            seen.append(stagers())
            return text

        (tmp_path / "other").mkdir()
        return asyncio.run(said())

    with ThreadPoolExecutor(1) as pool:
        assert await asyncio.get_running_loop().run_in_executor(pool, elsewhere) == "elsewhere\n"
    assert len(seen[0] - before) == 1
    assert stagers() == before
    assert await stand.said("echo here") == "here\n"


async def test_view_that_cannot_be_mounted_is_reported_with_the_reason(stand: Stand) -> None:
    async with stand.begin() as view:
        stand.tree.rmdir()
        with pytest.raises(ToolFailed, match=r"did not start.*No such file or directory"):
            await view.run(SandboxCommand("true"))
        stand.tree.mkdir()
