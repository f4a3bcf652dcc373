"""Cases 33 to 36, 38, 41 and 42: an attacker changes the tree while we read and write it.

The attacker swaps a folder and a link to the outside without pause. One test shows that the attack works:
the algorithm that checks first and opens afterwards leaks. The others show that our disk access does not.
"""

import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import IO

import pytest

from toolcrib.core.errors import Conflict, NotFound, PathOutsideMount, SymlinkNotFollowed, ToolcribError
from toolcrib.core.paths import Mount, WorkspacePath
from toolcrib.workspace.fs.mount_writer import MountWriter

SECRET = b"SECRET"
SHORT = {"reads": 5_000, "writes": 2_000}
LONG = {"reads": 100_000, "writes": 100_000}
# However busy the machine, both sides of the swap are met well within this time.
DEADLINE_S = 120


@pytest.fixture(scope="session")
def swapper(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("swapper") / "swapper"
    source = Path(__file__).with_name("swapper.c")
    subprocess.run(["cc", "-O2", "-Wall", "-Werror", "-o", program, source], check=True)
    return program


class Arena:
    """A workspace, the outside, and inside it ``folder`` and ``link``, which the attacker swaps."""

    def __init__(self, base: Path) -> None:
        self.root, self.outside = base / "ws", base / "outside"
        for folder in (self.outside, self.root / "folder"):
            folder.mkdir(parents=True)
        (self.outside / "file").write_bytes(SECRET)
        (self.outside / "only-outside").touch()
        (self.root / "folder/file").write_bytes(b"inside")
        (self.root / "link").symlink_to(self.outside)
        self._before = self._outside()

    def require_untouched(self) -> None:
        assert self._outside() == self._before

    def _outside(self) -> list[tuple[str, bytes, int]]:
        paths = [self.outside, *sorted(self.outside.rglob("*"))]
        return [(path.name, path.read_bytes() if path.is_file() else b"", path.stat().st_mtime_ns) for path in paths]


@pytest.fixture
def arena(tmp_path: Path) -> Iterator[Arena]:
    """In memory where possible, since fsync costs nothing there and the race is tighter."""
    shared = Path("/dev/shm")
    base = shared if os.access(shared, os.W_OK) else tmp_path
    with tempfile.TemporaryDirectory(dir=base) as folder:
        yield Arena(Path(folder))


@pytest.fixture(params=[True, False], ids=["openat2", "walk"])
def disk(request: pytest.FixtureRequest, arena: Arena) -> Iterator[MountWriter]:
    with MountWriter(arena.root, openat2=request.param) as disk:
        yield disk


@contextmanager
def swapping(swapper: Path, one: Path, other: Path) -> Iterator[None]:
    with subprocess.Popen([swapper, one, other], stdout=subprocess.PIPE) as attacker:
        try:
            assert piped(attacker).read(1) == b"!"
            yield
            assert attacker.poll() is None
        finally:
            attacker.kill()


def piped(process: subprocess.Popen[bytes]) -> IO[bytes]:
    assert process.stdout is not None
    return process.stdout


def at(path: str) -> WorkspacePath:
    return WorkspacePath(Mount.PROJECT, path)


def race(times: int, act: Callable[[int], str]) -> Counter[str]:
    """Act at least this often, and until both the folder and the link were met."""
    met: Counter[str] = Counter()
    deadline = time.monotonic() + DEADLINE_S
    for number in count():
        if number >= times and met["inside"] and met["refused"]:
            return met
        assert number < times or time.monotonic() < deadline, f"The race was one-sided: {met}"
        try:
            met[act(number)] += 1
        except (SymlinkNotFollowed, PathOutsideMount):
            met["refused"] += 1
    raise AssertionError("unreachable")


# The attack works


def test_attack_succeeds_against_checking_before_opening(swapper: Path, arena: Arena) -> None:
    """What ``realpath`` and a prefix check would let through, so that the tests below are credible."""
    with swapping(swapper, arena.root / "folder", arena.root / "link"):
        leaked = any(checked_then_opened(arena.root, "folder/file") == SECRET for _ in range(200_000))

    assert leaked


def checked_then_opened(root: Path, path: str) -> bytes | None:
    candidate = root / path
    # realpath checks and then reads the link, so the swap makes it fail too.
    with suppress(OSError):
        if os.path.realpath(candidate).startswith(f"{root}/"):
            return candidate.read_bytes()
    return None


# Cases 33 to 36: a folder is swapped for a link to the outside


@pytest.mark.parametrize(
    "times", [SHORT["reads"], pytest.param(LONG["reads"], marks=pytest.mark.race)], ids=["short", "long"]
)
def test_case_33_swap_during_reads(swapper: Path, arena: Arena, disk: MountWriter, times: int) -> None:
    def read(_: int) -> str:
        body, _node = disk.read(at("/folder/file"), limit=99)
        assert body == b"inside"
        return "inside"

    with swapping(swapper, arena.root / "folder", arena.root / "link"):
        race(times, read)


def test_case_33_swap_during_stat(swapper: Path, arena: Arena, disk: MountWriter) -> None:
    def look(_: int) -> str:
        assert disk.stat(at("/folder/only-outside")) is None
        return "inside"

    with swapping(swapper, arena.root / "folder", arena.root / "link"):
        race(SHORT["reads"], look)


@pytest.mark.parametrize(
    "times", [SHORT["writes"], pytest.param(LONG["writes"], marks=pytest.mark.race)], ids=["short", "long"]
)
def test_case_34_swap_during_writes(swapper: Path, arena: Arena, disk: MountWriter, times: int) -> None:
    def write(number: int) -> str:
        disk.write(at(f"/folder/{number % 50}"), b"x", mode=0o600)
        return "inside"

    with swapping(swapper, arena.root / "folder", arena.root / "link"):
        race(times, write)

    arena.require_untouched()
    assert not list(arena.root.rglob(".~toolcrib-*"))


def test_case_34_swap_during_every_other_change(swapper: Path, arena: Arena, disk: MountWriter) -> None:
    (arena.outside / "empty").mkdir()
    (arena.root / "folder/other").touch()
    mode = (arena.outside / "only-outside").stat().st_mode

    def change(number: int) -> str:
        match number % 6:
            case 0:
                disk.make_link(at("/folder/new"), "anywhere")
            case 1:
                disk.set_mode(at("/folder/file"), 0o600)
            case 2:
                disk.set_times(at("/folder/file"))
            case 3:
                disk.remove(at("/folder/only-outside"))
            case 4:
                disk.sweep(at("/folder"))
            case 5:
                moving(lambda: disk.rename(at("/folder/other"), at("/folder/another")))
                moving(lambda: disk.rename(at("/folder/another"), at("/folder/other")))
        return "inside"

    with swapping(swapper, arena.root / "folder", arena.root / "link"):
        race(SHORT["writes"], change)

    assert sorted(path.name for path in arena.outside.iterdir()) == ["empty", "file", "only-outside"]
    assert (arena.outside / "only-outside").stat().st_mode == mode
    assert (arena.outside / "file").stat().st_mode == mode


def moving(act: Callable[[], object]) -> None:
    """Move what may still be where the last move failed."""
    with suppress(Conflict, NotFound):
        act()


@pytest.mark.parametrize(
    "times", [SHORT["writes"], pytest.param(LONG["writes"], marks=pytest.mark.race)], ids=["short", "long"]
)
def test_case_35_swap_during_mkdir(swapper: Path, arena: Arena, disk: MountWriter, times: int) -> None:
    def make(number: int) -> str:
        disk.make_folder(at(f"/folder/{number}/a/b"), mode=0o700)
        return "inside"

    with swapping(swapper, arena.root / "folder", arena.root / "link"):
        race(times, make)

    arena.require_untouched()


@pytest.mark.parametrize(
    "times", [SHORT["reads"], pytest.param(LONG["reads"], marks=pytest.mark.race)], ids=["short", "long"]
)
def test_case_36_swap_during_listing(swapper: Path, arena: Arena, disk: MountWriter, times: int) -> None:
    def entries(_: int) -> str:
        assert [entry.name for entry in disk.entries(at("/folder"))] == ["file"]
        return "inside"

    with swapping(swapper, arena.root / "folder", arena.root / "link"):
        race(times, entries)


@pytest.mark.parametrize(
    "times", [SHORT["reads"], pytest.param(LONG["reads"], marks=pytest.mark.race)], ids=["short", "long"]
)
def test_case_36_swap_during_walking(swapper: Path, arena: Arena, disk: MountWriter, times: int) -> None:
    def walk(_: int) -> str:
        found = {workspace_path.path for workspace_path, _ in disk.walk(at("/"))}
        assert not {path for path in found if path.endswith("only-outside")}
        return "inside" if len(found) > 2 else "refused"

    with swapping(swapper, arena.root / "folder", arena.root / "link"):
        race(times, walk)


# Case 38: the target itself is swapped


@pytest.mark.parametrize("kind", ["folder", "fifo", "link"])
def test_case_38_target_replaced_while_written(swapper: Path, arena: Arena, disk: MountWriter, kind: str) -> None:
    target, decoy = arena.root / "target", arena.root / "decoy"
    target.write_bytes(b"old")
    match kind:
        case "folder":
            decoy.mkdir()
        case "fifo":
            os.mkfifo(decoy)
        case "link":
            decoy.symlink_to(arena.outside)
    met: Counter[str] = Counter()

    with swapping(swapper, target, decoy):
        for _ in range(SHORT["writes"]):
            try:
                disk.write(at("/target"), b"new", mode=0o644)
                met["written"] += 1
            except (Conflict, SymlinkNotFollowed, PathOutsideMount):
                met["refused"] += 1
            with suppress(ToolcribError):
                assert disk.read(at("/target"), limit=99)[0] in (b"old", b"new")

    assert met["written"]
    arena.require_untouched()
    assert not list(arena.root.glob(".~toolcrib-*"))


# Case 41: many writers


def test_case_41_concurrent_writers_leave_one_complete_file(arena: Arena, disk: MountWriter) -> None:
    bodies = [bytes([letter]) * 100_000 for letter in b"abcdefgh"]

    def write_and_read(body: bytes) -> None:
        for _ in range(25):
            disk.write(at("/a/b/shared"), body, mode=0o644)
            seen, node = disk.read(at("/a/b/shared"), limit=1 << 20)
            assert seen in bodies
            assert node.fingerprint.size == len(seen)

    with ThreadPoolExecutor(len(bodies)) as writers:
        assert len(list(writers.map(write_and_read, bodies))) == len(bodies)

    assert [entry.name for entry in disk.entries(at("/a/b"))] == ["shared"]
    assert len(os.listdir(arena.root / "a/b")) == 1


# Case 42: killed in the middle

WRITER = """
import sys
from pathlib import Path
from toolcrib.core.paths import Mount, WorkspacePath
from toolcrib.workspace.fs.mount_writer import MountWriter

disk = MountWriter(Path(sys.argv[1]), openat2=sys.argv[2] == "True")
while True:
    for letter in (b"a", b"b"):
        disk.write(WorkspacePath(Mount.PROJECT, "/folder/file"), letter * 2_000_000, mode=0o644)
        sys.stdout.write("!")
        sys.stdout.flush()
"""


@pytest.mark.parametrize("openat2", [True, False], ids=["openat2", "walk"])
def test_case_42_killed_while_writing(tmp_path: Path, openat2: bool) -> None:
    strays = 0
    with MountWriter(tmp_path, openat2=openat2) as disk:
        disk.write(at("/folder/file"), b"a" * 2_000_000, mode=0o644)
        for _ in range(12):
            kill_a_writer(tmp_path, openat2=openat2)

            body, _node = disk.read(at("/folder/file"), limit=1 << 22)
            assert body in (b"a" * 2_000_000, b"b" * 2_000_000)
            swept = disk.sweep(at("/folder"))
            assert swept <= 1
            strays += swept
            assert os.listdir(tmp_path / "folder") == ["file"]

    assert strays, "No kill met a write, so this showed nothing"


def kill_a_writer(root: Path, *, openat2: bool) -> None:
    """Let a process write without pause, and kill it at a random moment after its first write."""
    with subprocess.Popen([sys.executable, "-c", WRITER, root, str(openat2)], stdout=subprocess.PIPE) as writer:
        try:
            assert piped(writer).read(1) == b"!"
            with pytest.raises(subprocess.TimeoutExpired):
                writer.wait(timeout=random.uniform(0, 0.03))
        finally:
            writer.kill()
