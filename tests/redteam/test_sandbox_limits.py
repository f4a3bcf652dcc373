"""Commands that take more than their share of memory and CPU, on hosts without cgroups."""

import os
from pathlib import Path
from time import thread_time

import pytest

from tests.integration.sandbox.sandbox_fixture import Stand, python
from tests.wait_until import PATIENCE, TRIES
from toolcrib.core.paths import Mount, WorkspacePath
from toolcrib.policy.protected_paths import ProtectedPaths
from toolcrib.sandbox.background_process import pause_after
from toolcrib.sandbox.command import CommandResult, SandboxCommand
from toolcrib.sandbox.resource_limits import MIB, MOST_EAGER, ResourceLimits, delegated
from toolcrib.workspace.fs.protected_scan import ProtectedPathScanner

LIMITS = ResourceLimits(memory_bytes=256 * MIB)
MAPPING = """
import ctypes, mmap, os, signal
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
PR_SET_DUMPABLE, MADV_DONTNEED, FAILED = 4, 4, 2**64 - 1
def mapped(size, flags, fd=-1):
    at = libc.mmap(None, size, 3, flags, fd, 0)
    return None if at == FAILED else at
"""


@pytest.fixture
def stand(tmp_path: Path) -> Stand:
    return Stand(tmp_path)


async def attacked(stand: Stand, program: str, limits: ResourceLimits = LIMITS) -> CommandResult:
    return await stand.run(SandboxCommand(python(MAPPING + program), seconds=PATIENCE, limits=limits))


@pytest.mark.parametrize(
    "hide",
    [
        "libc.madvise(at, SIZE, MADV_DONTNEED)",
        "libc.munmap(at + 4096, SIZE - 4096)",
        "libc.munmap(at, SIZE - 4096)",
    ],
    ids=["dropped from the process", "all but the first page unmapped", "all but the last page unmapped"],
)
async def test_shared_memory_that_no_process_has_resident_is_counted(stand: Stand, hide: str) -> None:
    """The red team used 4,000 MiB under a limit of 2,048 in this way."""
    result = await attacked(
        stand,
        f"""
SIZE = 16 << 20
libc.prctl(PR_SET_DUMPABLE, 0)
for _ in range(64):
    at = mapped(SIZE, mmap.MAP_SHARED | mmap.MAP_ANONYMOUS)
    ctypes.memset(at, 1, SIZE)
    {hide}
while True: signal.pause()
""",
    )
    assert result.stopped == "more than 256 MiB of memory", result


@pytest.mark.parametrize(
    "flags",
    [
        "mmap.MAP_SHARED | mmap.MAP_ANONYMOUS",
        "3 | mmap.MAP_ANONYMOUS",  # MAP_SHARED_VALIDATE
        "mmap.MAP_SHARED | mmap.MAP_ANONYMOUS, 7",
        "mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40000",  # MAP_HUGETLB
    ],
)
async def test_too_large_shared_mapping_is_denied(stand: Stand, flags: str) -> None:
    result = await attacked(
        stand, f"print(mapped((16 << 20) + 4096, {flags}), mapped(5 << 30, {flags}))", ResourceLimits()
    )
    assert result.output.text == "None None\n"


async def test_dev_zero_is_readable_and_not_mappable_as_shared_memory(stand: Stand) -> None:
    result = await attacked(
        stand,
        """
for flags in (os.O_RDWR, os.O_WRONLY, os.O_RDONLY):
    try:
        zero = os.open("/dev/zero", flags)
    except OSError as error:
        continue
    print(flags, mapped(1 << 30, mmap.MAP_SHARED, zero))
print(os.read(os.open("/dev/zero", os.O_RDONLY), 1000) == bytes(1000), os.stat("/dev/zero").st_blocks)
""",
    )
    assert result.output.text == "0 None\nTrue 0\n"


async def test_memory_shared_by_parent_and_child_still_works(stand: Stand) -> None:
    result = await attacked(
        stand,
        """
both = mmap.mmap(-1, 8 << 20)
if os.fork() == 0:
    both[0:5] = b"hello"
    os._exit(0)
os.wait()
print(both[0:5])
""",
    )
    assert (result.exit_code, result.output.text) == (0, "b'hello'\n")


async def test_private_memory_of_many_processes_is_added_up(stand: Stand) -> None:
    result = await attacked(
        stand,
        """
for _ in range(8):
    if os.fork() == 0:
        held = bytearray(b"x") * (50 << 20)
        signal.pause()
signal.pause()
""",
    )
    assert result.stopped == "more than 256 MiB of memory", result


async def test_command_has_lower_priority_than_the_server_and_cannot_raise_it(stand: Stand) -> None:
    said = await stand.said(
        python(
            """
import os
print(os.nice(0))
for attempt in (
    lambda: os.nice(-1),
    lambda: os.setpriority(os.PRIO_PROCESS, 0, 0),
    lambda: os.setpriority(os.PRIO_USER, 0, 0),
    lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)),
    lambda: os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1)),
):
    try:
        attempt()
    except PermissionError:
        continue
    print("succeeded")
"""
        )
    )
    assert said == f"{min(19, os.nice(0) + 5)}\n"


async def test_very_many_spinning_processes_get_only_idle_cpu_time(stand: Stand) -> None:
    """4 commands with 240 spinning processes each stalled the server for more than half a minute."""
    program = f"""
import os
for _ in range({MOST_EAGER + 20}):
    if os.fork() == 0:
        while os.sched_getscheduler(0) != os.SCHED_IDLE: pass
        os._exit(0)
for _ in range({MOST_EAGER}):
    assert os.wait()[1] == 0
print("demoted")
"""
    result = await stand.run(SandboxCommand(python(program), seconds=PATIENCE))
    assert result.output.text == "demoted\n"


async def test_demoted_processes_stay_demoted(stand: Stand) -> None:
    result = await stand.run(
        SandboxCommand(
            python(
                """
import os
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
for policy in (os.SCHED_OTHER, os.SCHED_BATCH):
    try:
        os.sched_setscheduler(0, policy, os.sched_param(0))
    except PermissionError:
        print("refused")
child = os.fork()
if child == 0:
    os._exit(os.sched_getscheduler(0))
print(os.waitstatus_to_exitcode(os.wait()[1]) == os.SCHED_IDLE)
"""
            ),
            seconds=PATIENCE,
        )
    )
    assert result.output.text == "refused\nrefused\nTrue\n"


def test_cgroups_are_created_beside_a_server_in_its_own_cgroup(tmp_path: Path) -> None:
    """As the kernel shows it to a server that was started with DelegateSubgroup=."""
    unit, leaf = tmp_path / "toolcrib.service", tmp_path / "toolcrib.service" / "server"
    leaf.mkdir(parents=True)
    for group in (tmp_path, unit, leaf):
        (group / "cgroup.procs").touch()
        (group / "cgroup.subtree_control").write_text("cpu memory pids\n" if group is not leaf else "")
    (leaf / "cgroup.subtree_control").chmod(0o444)
    (tmp_path / "cgroup.procs").chmod(0o444)

    assert delegated(leaf, tmp_path) == unit
    (unit / "cgroup.procs").chmod(0o444)
    assert delegated(leaf, tmp_path) is None
    assert delegated(tmp_path, tmp_path) is None


def test_protected_names_are_scanned_often_in_a_tree_of_twenty_thousand_folders(tmp_path: Path) -> None:
    """They stayed for 10 to 12 seconds before. Measured in CPU time, which a busy machine does not affect."""
    for number in range(20_000):
        (tmp_path / str(number // 200) / str(number % 200)).mkdir(parents=True)
    hidden, root = ProtectedPathScanner(), WorkspacePath(Mount.PROJECT, "/")
    looks = []
    for _ in range(TRIES + 1):
        began = thread_time()
        assert hidden.below(tmp_path, root, ProtectedPaths().protects_writing, aliases=False) == frozenset()
        looks.append(thread_time() - began)

    spent = min(looks[1:])
    assert spent + pause_after(spent) < 2.0
    (tmp_path / "7" / "7" / ".env").touch()
    assert hidden.below(tmp_path, root, ProtectedPaths().protects_writing, aliases=False) == {"7/7/.env"}
