"""Cases 25 to 32, 37, 39 and 40: links and mounts that lead out of the tree."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from tests.wait_until import PATIENCE
from toolcrib.core.errors import PathOutsideMount, ProtectedPath, SymlinkNotFollowed
from toolcrib.core.files import EntryKind
from toolcrib.core.paths import Mount, WorkspacePath
from toolcrib.workspace.fs.mount_writer import MountWriter

SECRET = b"SECRET"
WAYS = pytest.mark.parametrize("openat2", [True, False], ids=["openat2", "walk"])


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Path]:
    """A folder outside the workspace, which must be unchanged after every test."""
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o755)
    (outside / "secret").write_bytes(SECRET)
    before = snapshot(outside)
    yield outside
    assert snapshot(outside) == before


def snapshot(folder: Path) -> list[tuple[str, int, int, int, bytes]]:
    paths = [folder, *sorted(folder.rglob("*"))]
    facts = [(path, path.lstat()) for path in paths]
    return [
        (
            path.name,
            seen.st_mode,
            seen.st_mtime_ns,
            seen.st_nlink,
            path.read_bytes() if path.is_file() else b"",
        )
        for path, seen in facts
    ]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "ws"
    (root / "folder").mkdir(parents=True)
    (root / "folder/file").write_bytes(b"inside")
    return root


@pytest.fixture(params=[True, False], ids=["openat2", "walk"])
def disk(request: pytest.FixtureRequest, root: Path) -> Iterator[MountWriter]:
    with MountWriter(root, openat2=request.param) as disk:
        yield disk


def at(path: str) -> WorkspacePath:
    return WorkspacePath(Mount.PROJECT, path)


def every_act(disk: MountWriter, path: WorkspacePath) -> dict[str, Callable[[], object]]:
    """Return every call that would read or change a path's target."""
    return {
        "read": lambda: disk.read(path, limit=99),
        "entries": lambda: disk.entries(path),
        "walk": lambda: list(disk.walk(path)),
        "write": lambda: disk.write(path, b"x", mode=0o644),
        "make_folder": lambda: disk.make_folder(path, mode=0o700),
        "set_mode": lambda: disk.set_mode(path, 0o777),
        "set_times": lambda: disk.set_times(path),
        "sweep": lambda: disk.sweep(path),
    }


def every_act_below(disk: MountWriter, path: WorkspacePath) -> dict[str, Callable[[], object]]:
    """Return every call that would have to pass through a path."""
    below, deeper = path.child("secret"), path.child("new").child("x")
    return every_act(disk, below) | {
        "look": lambda: disk.stat(below),
        "write new": lambda: disk.write(deeper, b"x", mode=0o644),
        "make new folder": lambda: disk.make_folder(deeper, mode=0o755),
        "make_link": lambda: disk.make_link(below, "x"),
        "rename from": lambda: disk.rename(below, at("/taken")),
        "rename to": lambda: disk.rename(at("/folder/file"), deeper),
        "remove": lambda: disk.remove(below),
    }


def test_case_25_link_to_a_file(disk: MountWriter, root: Path, outside: Path) -> None:
    (root / "absolute").symlink_to(outside / "secret")
    (root / "relative").symlink_to("../outside/secret")

    for name in ("absolute", "relative"):
        for act in every_act(disk, at(f"/{name}")).values():
            with pytest.raises(PathOutsideMount, match="outside the workspace"):
                act()


def test_case_25_link_itself_can_be_inspected_moved_and_deleted(disk: MountWriter, root: Path, outside: Path) -> None:
    (root / "link").symlink_to(outside / "secret")

    node = disk.stat(at("/link"))
    disk.rename(at("/link"), at("/moved"))
    disk.remove(at("/moved"))

    assert node is not None
    assert node.kind is EntryKind.LINK
    assert not (root / "moved").is_symlink()


def test_case_25_link_that_stays_inside_is_an_ordinary_error(disk: MountWriter, root: Path) -> None:
    (root / "link").symlink_to("folder/../folder/file")

    for act in every_act(disk, at("/link")).values():
        with pytest.raises(SymlinkNotFollowed, match=r"^/link is a symbolic link; links are not followed"):
            act()
    assert (root / "folder/file").read_bytes() == b"inside"


def test_case_25_link_that_leads_out_through_other_links_is_outside(
    disk: MountWriter, root: Path, outside: Path
) -> None:
    (root / "first").symlink_to("folder/second")
    (root / "folder/second").symlink_to("../third/secret")
    (root / "third").symlink_to("../outside")

    with pytest.raises(PathOutsideMount):
        disk.read(at("/first"), limit=99)


def test_case_26_link_to_a_folder(disk: MountWriter, root: Path, outside: Path) -> None:
    (root / "absolute").symlink_to(outside)
    (root / "folder/relative").symlink_to("../../outside")

    for path in ("/absolute", "/folder/relative"):
        for act in every_act_below(disk, at(path)).values():
            with pytest.raises(PathOutsideMount):
                act()
        for act in every_act(disk, at(path)).values():
            with pytest.raises(PathOutsideMount):
                act()


def test_case_26_walk_lists_the_link_and_does_not_enter_it(disk: MountWriter, root: Path, outside: Path) -> None:
    (root / "link").symlink_to(outside)

    assert sorted(path.path for path, _ in disk.walk(at("/"))) == ["/folder", "/folder/file", "/link"]


def test_case_27_dangling_link_on_create(disk: MountWriter, root: Path, outside: Path) -> None:
    (root / "out").symlink_to(outside / "new")
    (root / "in").symlink_to("new")

    with pytest.raises(PathOutsideMount):
        disk.write(at("/out"), b"x", mode=0o644)
    with pytest.raises(SymlinkNotFollowed):
        disk.write(at("/in"), b"x", mode=0o644)
    assert not (root / "new").exists()


def test_case_28_link_above_a_new_file(disk: MountWriter, root: Path, outside: Path) -> None:
    (root / "folder/link").symlink_to(outside)
    (root / "folder/dangling").symlink_to(outside / "new")

    for path in ("/folder/link/new", "/folder/link/a/b/new", "/folder/dangling/new", "/folder/dangling/a/b"):
        with pytest.raises(PathOutsideMount):
            disk.write(at(path), b"x", mode=0o644)
        with pytest.raises(PathOutsideMount):
            disk.make_folder(at(path), mode=0o755)


def test_case_29_loop(disk: MountWriter, root: Path) -> None:
    (root / "self").symlink_to("self")
    (root / "one").symlink_to("two")
    (root / "two").symlink_to("one")

    for path in ("/self", "/one", "/self/x", "/one/x/y"):
        with pytest.raises(SymlinkNotFollowed):
            disk.read(at(path), limit=99)
        with pytest.raises(SymlinkNotFollowed):
            disk.write(at(path), b"x", mode=0o644)


def test_case_30_link_into_proc(disk: MountWriter, root: Path) -> None:
    (root / "environ").symlink_to("/proc/self/environ")
    (root / "cwd").symlink_to("/proc/self/cwd")

    for path in ("/environ", "/cwd/pyproject.toml"):
        with pytest.raises(PathOutsideMount):
            disk.read(at(path), limit=1 << 20)


@WAYS
def test_case_30_magic_link(openat2: bool) -> None:
    with MountWriter(Path(f"/proc/{os.getpid()}"), openat2=openat2) as disk:
        for path in ("/root/etc/passwd", "/cwd", "/exe", "/fd/0"):
            with pytest.raises((PathOutsideMount, SymlinkNotFollowed)):
                disk.read(at(path), limit=1 << 20)


def test_case_32_hard_link(disk: MountWriter, root: Path) -> None:
    (root / ".env").write_bytes(SECRET)
    os.link(root / ".env", root / "notes.txt")

    with pytest.raises(ProtectedPath, match="several hard links"):
        disk.read(at("/notes.txt"), limit=99, hard_links=False)

    body, node = disk.read(at("/notes.txt"), limit=99)
    assert (body, node.links) == (SECRET, 2)
    assert disk.read(at("/folder/file"), limit=99, hard_links=False)[0] == b"inside"


def test_case_40_root_replaced(disk: MountWriter, root: Path, outside: Path, tmp_path: Path) -> None:
    root.rename(tmp_path / "moved")
    root.symlink_to(outside)

    assert disk.read(at("/folder/file"), limit=99)[0] == b"inside"
    assert disk.stat(at("/secret")) is None
    disk.write(at("/new"), b"x", mode=0o644)
    assert (tmp_path / "moved/new").read_bytes() == b"x"


# A mount inside the workspace, made in its own namespace, where an ordinary user may mount.


@WAYS
@pytest.mark.parametrize("kind", ["bind", "tmpfs"])
def test_case_39_mount_crossing(root: Path, outside: Path, openat2: bool, kind: str) -> None:
    (root / "mounted").mkdir()
    program = """
        for act in every_act_below(disk, at("/mounted")).values():
            with pytest.raises(PathOutsideMount):
                act()
        for act in every_act(disk, at("/mounted")).values():
            with pytest.raises((PathOutsideMount, Conflict)):
                act()
        found = sorted(place.path for place, _ in disk.walk(at("/")))
        assert found == ["/folder", "/folder/file", "/mounted"], found
    """
    in_a_namespace(root, outside, openat2=openat2, kind=kind, program=program)


@WAYS
def test_case_39_file_that_is_mounted_over_is_not_read(root: Path, outside: Path, openat2: bool) -> None:
    (root / "mounted").touch()
    program = """
        with pytest.raises(PathOutsideMount):
            disk.read(at("/mounted"), limit=99)
        with pytest.raises(Conflict):
            disk.write(at("/mounted"), b"x", mode=0o644)
    """
    in_a_namespace(root, outside / "secret", openat2=openat2, kind="bind", program=program)


@WAYS
def test_case_37_rename_across_mounts(root: Path, outside: Path, openat2: bool) -> None:
    (root / "mounted").mkdir()
    program = """
        with pytest.raises(PathOutsideMount):
            disk.rename(at("/folder/file"), at("/mounted/taken"))
        with pytest.raises(PathOutsideMount):
            disk.rename(at("/mounted/secret"), at("/taken"))
        assert disk.read(at("/folder/file"), limit=99)[0] == b"inside"
    """
    in_a_namespace(root, outside, openat2=openat2, kind="bind", program=program)


def in_a_namespace(root: Path, outside: Path, *, openat2: bool, kind: str, program: str) -> None:
    """Run ``program`` where ``outside``, or an empty file system, is mounted inside the workspace."""
    mount = ["--bind", str(outside)] if kind == "bind" else ["-t", "tmpfs", "none"]
    preamble = f"""
        import subprocess, sys
        from importlib.util import module_from_spec, spec_from_file_location
        from pathlib import Path
        import pytest
        from toolcrib.core.errors import Conflict, PathOutsideMount
        from toolcrib.workspace.fs.mount_writer import MountWriter

        spec = spec_from_file_location("links", {__file__!r})
        links = module_from_spec(spec)
        spec.loader.exec_module(links)
        at, every_act, every_act_below = links.at, links.every_act, links.every_act_below

        root = Path({str(root)!r})
        subprocess.run(["mount", *{mount!r}, root / "mounted"], check=True)
        disk = MountWriter(root, openat2={openat2})
    """
    script = dedent(preamble) + dedent(program)
    ran = subprocess.run(
        ["unshare", "-Urm", sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
