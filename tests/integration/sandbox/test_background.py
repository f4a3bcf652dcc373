"""Background processes: read by offset, written to, stopped, and ended with their session and their server."""

import asyncio
import json
import os
import select
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.integration.sandbox import outliver
from tests.integration.sandbox.sandbox_fixture import SANDBOX, Stand
from tests.wait_until import PATIENCE
from toolcrib.core.errors import ToolFailed
from toolcrib.sandbox.background_process import KEPT_BYTES, BackgroundSandbox, SandboxedProcess
from toolcrib.sandbox.bubblewrap import ViewMount
from toolcrib.sandbox.command import SandboxCommand
from toolcrib.sandbox.resource_limits import MIB, ResourceLimits, descendants


@pytest.fixture
async def background(tmp_path: Path) -> AsyncIterator[BackgroundSandbox]:
    await SANDBOX.probe()  # from here on the fork server runs, and stays
    before = len(list(descendants(os.getpid())))
    stand = Stand(tmp_path)
    background = BackgroundSandbox(SANDBOX, stand.staging)
    yield background
    await background.close()
    assert len(list(descendants(os.getpid()))) == before
    assert list(stand.staging.iterdir()) == []


def mounts(tmp_path: Path, *masked: str) -> list[ViewMount]:
    return [ViewMount("project", tmp_path / "tree", "/mnt/project", writable=True, masked=masked)]


async def until(process: SandboxedProcess, text: bytes) -> bytes:
    """Return all output, once it contains ``text``."""
    said, offset = b"", 0
    async with asyncio.timeout(PATIENCE):
        while text not in said:
            piece = await process.wait_for_output(offset)
            assert piece.data or process.is_running, said
            said, offset = said + piece.data, piece.next
    return said


async def test_process_reads_input_and_its_output_is_read_by_offset(
    background: BackgroundSandbox, tmp_path: Path
) -> None:
    echo = SandboxCommand("while read line; do echo got $line; done; echo bye; exit 3")
    process = await background.start(echo, mounts(tmp_path))
    assert process.write(b"one\ntwo\n") == 8
    assert await until(process, b"two\n") == b"got one\ngot two\n"
    assert process.output(8).data == b"got two\n"
    process.end_input()
    await until(process, b"bye\n")
    async with asyncio.timeout(PATIENCE):
        await process.wait()
    assert (process.exit_code, process.stopped) == (3, None)
    with pytest.raises(ToolFailed):
        process.write(b"late")


async def test_process_works_on_the_live_tree(background: BackgroundSandbox, tmp_path: Path) -> None:
    (tmp_path / "tree" / "in").write_text("before")
    process = await background.start(SandboxCommand("cat in; echo made > out; echo done; sleep 600"), mounts(tmp_path))
    assert await until(process, b"done") == b"beforedone\n"
    assert (tmp_path / "tree" / "out").read_text() == "made\n"
    assert (tmp_path / "tree" / "out").stat().st_uid == os.getuid()


async def test_stop_ends_it_and_all_its_children(background: BackgroundSandbox, tmp_path: Path) -> None:
    before = len(list(descendants(os.getpid())))
    process = await background.start(SandboxCommand(outliver.STUBBORN), mounts(tmp_path))
    await until(process, b"up")
    await process.stop()
    assert (process.is_running, process.exit_code, process.stopped) == (False, None, "stopped on request")
    assert len(list(descendants(os.getpid()))) == before


async def test_when_the_server_stops_its_processes_end(background: BackgroundSandbox, tmp_path: Path) -> None:
    before = len(list(descendants(os.getpid())))
    started = [await background.start(SandboxCommand("sleep 600"), mounts(tmp_path)) for _ in range(3)]
    await background.close()
    assert [process.stopped for process in started] == ["the server stops"] * 3
    assert len(list(descendants(os.getpid()))) == before


async def test_endless_output_is_truncated(background: BackgroundSandbox, tmp_path: Path) -> None:
    process = await background.start(
        SandboxCommand("head -c 5000000 /dev/zero | tr '\\0' x; echo end"), mounts(tmp_path)
    )
    await until(process, b"end")
    piece = process.output(most=10)
    assert piece.data == b"x" * 10
    assert KEPT_BYTES <= 5_000_004 - piece.offset <= 2 * KEPT_BYTES + 1
    assert piece.missed == piece.offset


async def test_masked_files_are_hidden_and_a_replaced_one_ends_the_process(
    background: BackgroundSandbox, tmp_path: Path
) -> None:
    secret = tmp_path / "tree" / ".env"
    secret.write_text("SECRET=1")
    (tmp_path / "tree" / ".ssh").mkdir()
    (tmp_path / "tree" / ".ssh" / "id_rsa").write_text("SECRET=2")
    command = SandboxCommand("cat .env; ls -A .ssh; mv .env x; rm -rf .ssh .env; cat x; echo up; sleep 600")
    process = await background.start(command, mounts(tmp_path, ".env", ".ssh", "sub/missing"))
    assert b"SECRET" not in await until(process, b"up")
    assert secret.read_text() == "SECRET=1"
    (tmp_path / "fresh").write_text("SECRET=3")
    (tmp_path / "fresh").rename(secret)
    async with asyncio.timeout(PATIENCE):
        await process.wait()
    assert "masked file was replaced" in (process.stopped or "")


async def test_exceeding_a_limit_ends_it(background: BackgroundSandbox, tmp_path: Path) -> None:
    command = SandboxCommand(
        "while :; do head -c 4M /dev/zero > /tmp/$((n=n+1)); done", limits=ResourceLimits(disk_bytes=32 * MIB)
    )
    process = await background.start(command, mounts(tmp_path))
    async with asyncio.timeout(PATIENCE):
        await process.wait_for_output(0)
    assert process.stopped == "more than 32 MiB written"


async def test_writing_too_much_to_the_live_tree_ends_it(background: BackgroundSandbox, tmp_path: Path) -> None:
    limits = ResourceLimits(disk_bytes=32 * MIB)
    (tmp_path / "tree" / "before").write_bytes(b"x" * 40 * MIB)
    command = SandboxCommand("while :; do head -c 4M /dev/zero > $((n=n+1)); sleep 0.1; done", limits=limits)
    process = await background.start(command, mounts(tmp_path))
    async with asyncio.timeout(PATIENCE):
        await process.wait()
    assert process.stopped == "more than 32 MiB written"


async def test_working_directory_outside_is_rejected(background: BackgroundSandbox, tmp_path: Path) -> None:
    with pytest.raises(ToolFailed, match="outside the mounts"):
        await background.start(SandboxCommand("pwd", cwd="/etc"), mounts(tmp_path))


async def test_no_process_outlives_a_killed_server(tmp_path: Path) -> None:
    Stand(tmp_path)
    server = subprocess.Popen(
        [sys.executable, outliver.__file__, str(tmp_path)], stdout=subprocess.PIPE, env={"PATH": os.environ["PATH"]}
    )
    assert server.stdout
    line = await asyncio.wait_for(asyncio.to_thread(server.stdout.readline), PATIENCE)
    left = set()
    for pid in json.loads(line):
        # Shells that only start others have ended by now.
        with suppress(ProcessLookupError):
            left.add(os.pidfd_open(pid))
    assert len(left) >= 8
    server.kill()
    server.wait()
    server.stdout.close()
    poll = select.poll()
    for pidfd in left:
        poll.register(pidfd, select.POLLIN)
    while left:
        ended = poll.poll(5_000)
        assert ended, f"{len(left)} processes outlived the server"
        for pidfd, _ in ended:
            poll.unregister(pidfd)
            os.close(pidfd)
            left.discard(pidfd)
