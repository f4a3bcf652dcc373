"""A server that is killed while a command starts leaves nothing behind, whatever the moment."""

import os
import select
import subprocess
import sys
from pathlib import Path
from secrets import token_hex

import pytest

from tests.integration.sandbox import starter
from tests.integration.sandbox.sandbox_fixture import Stand


def test_no_command_survives_a_server_killed_while_it_starts(tmp_path: Path) -> None:
    campaign(tmp_path, servers=10)


@pytest.mark.crash
def test_no_command_survives_many_killed_servers(tmp_path: Path) -> None:
    campaign(tmp_path, servers=200)


def campaign(folder: Path, *, servers: int) -> None:
    Stand(folder)
    mark = token_hex(8)
    subprocess.run(
        [sys.executable, starter.__file__, str(folder), mark, str(servers), "1"],
        env={"PATH": os.environ["PATH"]},
        stderr=subprocess.DEVNULL,
        timeout=30 + servers,
        check=True,
    )
    for process in marked(mark):
        ended(process)
    assert marked(mark) == []


def marked(mark: str) -> list[int]:
    """Return every process on this machine whose command line contains the mark."""
    found = []
    for process in filter(str.isdecimal, os.listdir("/proc")):
        try:
            if mark.encode() in Path(f"/proc/{process}/cmdline").read_bytes():
                found.append(int(process))
        except OSError:
            continue
    return found


def ended(process: int) -> None:
    """Wait for a process to end, for as long as a dying server may take."""
    try:
        pidfd = os.pidfd_open(process)
    except ProcessLookupError:
        return
    try:
        assert select.select([pidfd], [], [], 10)[0], f"process {process} outlived its server"
    finally:
        os.close(pidfd)
