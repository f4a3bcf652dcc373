"""Files that a command must not leave on the host: set-id programs, devices, capabilities; and who may read them."""

import os
import socket
import stat
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import WorkspaceFixture, new_workspace
from tests.integration.sandbox.sandbox_fixture import COPYING, Stand, python
from tests.integration.tools.shell.builders import another_engine, new_workspace_fixture, ran
from tests.integration.tools.shell.test_background import ended
from toolcrib.core.paths import Mount, WorkspacePath
from toolcrib.runtime.process_setup import keep_private
from toolcrib.settings import Settings
from toolcrib.storage.database import Database
from toolcrib.workspace.fs.mount_writer import MountWriter

SET_ID = stat.S_ISUID | stat.S_ISGID
RULES = "echo 'ign*/' > .gitignore; "
# Every way to create a set-id file. Each prints its result.
WAYS = python(
    """
import ctypes, os, stat
libc = ctypes.CDLL(None, use_errno=True)
os.makedirs("ign2", exist_ok=True)
os.umask(0)
open("ign2/plain", "w").close()
file = os.open("ign2/plain", os.O_WRONLY)
O_TMPFILE = os.O_TMPFILE
how = (ctypes.c_uint64 * 3)(os.O_WRONLY | os.O_CREAT, 0o4755, 0)
AT = -100
def tmpfile():
    made = os.open("ign2", O_TMPFILE | os.O_WRONLY, 0o4755)
    os.link(f"/proc/self/fd/{made}", "ign2/tmpfile", src_dir_fd=made)
ways = {
    "open": lambda: os.open("ign2/open", os.O_WRONLY | os.O_CREAT, 0o4755),
    "open gid": lambda: os.open("ign2/opengid", os.O_WRONLY | os.O_CREAT, 0o2755),
    "creat": lambda: libc.syscall(85, b"ign2/creat", 0o4755),
    "old open": lambda: libc.syscall(2, b"ign2/old", os.O_WRONLY | os.O_CREAT, 0o4755),
    "openat2": lambda: libc.syscall(437, AT, b"ign2/openat2", how, 24),
    "tmpfile": tmpfile,
    "mknod": lambda: os.mknod("ign2/mknod", stat.S_IFREG | 0o4755),
    "old mknod": lambda: libc.syscall(133, b"ign2/oldmknod", stat.S_IFREG | 0o4755, 0),
    "mkdir": lambda: os.mkdir("ign2/mkdir", 0o6755),
    "chmod": lambda: os.chmod("ign2/plain", 0o4755),
    "old chmod": lambda: libc.syscall(90, b"ign2/plain", 0o4755),
    "fchmod": lambda: os.fchmod(file, 0o6755),
    "fchmodat": lambda: libc.syscall(268, AT, b"ign2/plain", 0o4755),
    "fchmodat2": lambda: libc.syscall(452, AT, b"ign2/plain", 0o4755, 0),
    "folder": lambda: os.chmod("ign2", 0o2755),
    "null": lambda: os.mknod("ign2/null", stat.S_IFCHR | 0o666, os.makedev(1, 3)),
    "whiteout": lambda: os.mknod("ign2/whiteout", stat.S_IFCHR | 0o666, 0),
    "disk": lambda: os.mknod("ign2/disk", stat.S_IFBLK | 0o666, os.makedev(254, 0)),
    "capability": lambda: os.setxattr("ign2/plain", "security.capability", bytes(20)),
    "opaque": lambda: os.setxattr("ign2", "user.overlay.opaque", b"y"),
    "access": lambda: os.setxattr("ign2/plain", "system.posix_acl_access", bytes(4)),
    "x": lambda: os.setxattr("ign2/plain", "user.x", b"y"),
}
for name, way in ways.items():
    try:
        way()
    except (OSError, AttributeError):
        pass
bad = [
    (place, name, oct(os.lstat(os.path.join(place, name)).st_mode))
    for place, folders, files in os.walk(".") for name in (".", *folders, *files)
    if os.lstat(os.path.join(place, name)).st_mode & 0o6000
    or stat.S_IFMT(os.lstat(os.path.join(place, name)).st_mode) in (stat.S_IFCHR, stat.S_IFBLK)
]
print("made", bad, os.listxattr("ign2/plain"), os.listxattr("ign2"))
"""
)
SHELL_WAYS = (
    "mkdir -p ign2; cp /bin/sh ign2/s; chmod 4755 ign2/s; chmod u+s,g+s ign2/s; "
    "install -m 4755 /bin/sh ign2/i; cp -p /usr/bin/passwd ign2/p; cp --preserve=all /usr/bin/su ign2/u; "
    "ln ign2/s ign2/hard; ln -s s ign2/soft; chmod 4755 ign2/soft; chmod 4755 ign2/hard; mkdir -m 6777 ign2/d; "
    "tar -C /usr/bin -cf - passwd | tar -C ign2/d -xpf -; cp ign2/s kept; chmod 6755 kept; echo done"
)


def bad_files(*roots: Path) -> list[str]:
    """Return what is below the roots and should be on no host."""
    found = []
    for root in roots:
        for workspace_path, folders, files in os.walk(root):
            for name in (".", *folders, *files):
                path = os.path.join(workspace_path, name)
                try:
                    seen = os.lstat(path)
                    kind = stat.S_IFMT(seen.st_mode)
                    capable = kind != stat.S_IFLNK and "security.capability" in os.listxattr(path)
                except FileNotFoundError:
                    # A command's folders are removed while we read.
                    continue
                if kind != stat.S_IFLNK and (seen.st_mode & SET_ID or kind in (stat.S_IFCHR, stat.S_IFBLK)):
                    found.append(f"{workspace_path}/{name} {oct(seen.st_mode)}")
                if capable:
                    found.append(f"{workspace_path}/{name} has capabilities")
                if seen.st_uid != os.getuid():
                    found.append(f"{workspace_path}/{name} of {seen.st_uid}")
    return found


@pytest.fixture
async def workspace(database: Database, settings: Settings) -> AsyncIterator[WorkspaceFixture]:
    workspace = await new_workspace_fixture(database, settings)
    yield workspace
    await workspace.engine.background.close()


@pytest.fixture
async def copying(database: Database, settings: Settings) -> WorkspaceFixture:
    """A sandbox without overlays."""
    return await new_workspace(database, settings, sandbox=COPYING)


async def test_red_team_commands_leave_no_set_id_file(workspace: WorkspaceFixture) -> None:
    result = await ran(workspace, RULES + SHELL_WAYS)

    assert result["output"].endswith("done\n")
    assert (workspace.project / "ign2" / "s").read_bytes() == Path("/bin/sh").read_bytes()
    assert (workspace.project / "kept").exists()
    assert bad_files(workspace.settings.data_dir) == []


async def test_no_system_call_creates_a_set_id_file_a_device_or_an_attribute(workspace: WorkspaceFixture) -> None:
    result = await ran(workspace, RULES + WAYS)

    assert result["output"] == "made [] [] []\n"
    assert (workspace.project / "ign2" / "plain").exists()
    assert bad_files(workspace.settings.data_dir) == []


async def test_no_system_call_does_so_on_a_copied_tree(copying: WorkspaceFixture) -> None:
    result = await ran(copying, RULES + WAYS.replace("exec ", "", 1) + "\n" + SHELL_WAYS)

    assert result["output"].startswith("made [] [] []\n")
    assert bad_files(copying.settings.data_dir) == []


async def test_background_processes_cannot_either(workspace: WorkspaceFixture) -> None:
    started = await workspace.result("bash_start", command=f"{RULES}{WAYS.replace('exec ', '', 1)}\n{SHELL_WAYS}")
    model_input = await ended(workspace, started["metadata"]["processId"])

    assert "made [] [] []\n" in started["output"] + model_input["output"]
    assert (workspace.project / "ign2" / "s").exists()
    assert bad_files(workspace.settings.data_dir) == []


async def test_sticky_folders_and_ordinary_modes_are_kept(workspace: WorkspaceFixture) -> None:
    result = await ran(workspace, RULES + "mkdir -m 1777 ign2; touch ign2/x; chmod 751 ign2/x; stat -c %a ign2 ign2/x")

    assert result["output"] == "1777\n751\n"
    assert stat.S_IMODE((workspace.project / "ign2" / "x").stat().st_mode) == 0o751


async def test_file_from_the_tree_loses_its_set_id_bits(workspace: WorkspaceFixture) -> None:
    """The kernel copies up a person's own set-id file with its mode, and it may get another name."""
    (workspace.project / "own").write_text("#!/bin/sh\n")
    (workspace.project / "own").chmod(0o4755)

    await ran(workspace, RULES + "mkdir ign2; ln own ign2/alias; touch own; mv ign2/alias ign2/moved")

    assert stat.S_IMODE((workspace.project / "ign2" / "moved").stat().st_mode) == 0o755
    assert bad_files(workspace.project / "ign2", workspace.project.parent / "trash") == []


async def test_trash_restores_nothing_with_set_id_bits(workspace: WorkspaceFixture) -> None:
    await ran(workspace, RULES + "mkdir -p ign2/d; cp /bin/sh ign2/s; cp /bin/sh ign2/d/s")
    folder = workspace.project / "ign2"
    # As an earlier version, or a person, left it.
    for path in (folder / "s", folder / "d" / "s", folder / "d", folder):
        path.chmod(0o6755)

    outcome = await workspace.call("bash", command="rm -rf ign2")
    assert outcome.succeeded, outcome.error
    assert not folder.exists()
    undone = await workspace.result("undo", calls=[str(outcome.call_id)])

    assert undone["conflicts"] == []
    assert stat.S_IMODE((folder / "d" / "s").stat().st_mode) == 0o755
    assert bad_files(workspace.project) == []


async def test_restored_version_has_no_set_id_bit(workspace: WorkspaceFixture) -> None:
    await ran(workspace, "cp /bin/ls tool; chmod 755 tool")
    (workspace.project / "tool").chmod(0o6755)

    outcome = await workspace.call("bash", command="rm tool")
    assert outcome.succeeded, outcome.error
    await workspace.result("undo", calls=[str(outcome.call_id)])

    assert stat.S_IMODE((workspace.project / "tool").stat().st_mode) == 0o755


def test_normalising_follows_no_link_and_removes_devices_capabilities_and_marks(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("x")
    outside.chmod(0o4755)
    root = tmp_path / "root"
    (root / "top" / "deep").mkdir(parents=True)
    (root / "top" / "link").symlink_to(outside)
    (root / "top" / "up").symlink_to("../..")
    (root / "top" / "deep" / "s").write_text("x")
    (root / "top" / "deep" / "s").chmod(0o6755)
    (root / "top" / "deep").chmod(0o2000)
    os.mkfifo(root / "top" / "pipe")
    os.setxattr(root / "top", "user.overlay.opaque", b"y")

    with MountWriter(root) as disk:
        disk.normalize(WorkspacePath(Mount.PROJECT, "/top"), imported=True)

    (root / "top" / "deep").chmod(0o700)
    assert bad_files(root) == []
    assert not (root / "top" / "pipe").exists()
    assert os.listxattr(root / "top") == []
    assert stat.S_IMODE(outside.stat().st_mode) == 0o4755


def test_existing_folder_keeps_its_pipes_and_its_setgid_bit(tmp_path: Path) -> None:
    (tmp_path / "top").mkdir()
    os.mkfifo(tmp_path / "top" / "pipe")
    (tmp_path / "top").chmod(0o2755)
    (tmp_path / "top" / "s").touch()
    (tmp_path / "top" / "s").chmod(0o2755)

    with MountWriter(tmp_path) as disk:
        disk.normalize(WorkspacePath(Mount.PROJECT, "/top"), imported=False, setgid_folders=True)

    assert (tmp_path / "top" / "pipe").is_fifo()
    assert stat.S_IMODE((tmp_path / "top").stat().st_mode) == 0o2755
    assert stat.S_IMODE((tmp_path / "top" / "s").stat().st_mode) == 0o755


# Read access


def open_folders(data: Path) -> list[str]:
    """Return the server's own folders that are open to others."""
    ours = [data, *data.glob("*"), *data.glob("workspaces/*"), *data.glob("workspaces/*/*"), *data.glob("staging/*/*")]
    return [str(path) for path in ours if path.is_dir() and path.stat().st_mode & 0o077]


async def test_data_directories_are_accessible_only_to_their_owner(
    database: Database, settings: Settings, tmp_path: Path
) -> None:
    before = os.umask(0)
    try:
        apart = settings.model_copy(update={"data_dir": tmp_path / "a" / "data"})
        workspace = await new_workspace_fixture(database, apart)
        mode = await ran(
            workspace, RULES + "mkdir ign; echo x > ign/x; echo y > y; stat -c %a /project; ls -d /project/.."
        )
        await ran(workspace, "rm -rf ign")
        await workspace.result("write", path="@central/x.md", content="x")
    finally:
        os.umask(before)

    assert mode["output"].startswith("700\n")
    assert {path.name for path in (tmp_path / "a" / "data").iterdir()} >= {"workspaces", "staging"}
    assert open_folders(tmp_path / "a" / "data") == []


async def test_directories_left_open_by_an_earlier_version_are_closed_at_startup(workspace: WorkspaceFixture) -> None:
    await ran(workspace, RULES + "mkdir ign; echo x > ign/x; rm -rf ign")
    data = workspace.settings.data_dir
    for path in (data, *data.glob("*"), *data.glob("workspaces/*"), *data.glob("workspaces/*/*")):
        path.chmod(0o755)

    again = another_engine(workspace)
    assert {path.stat().st_mode & 0o077 for path in (data, *data.glob("*"), *data.glob("workspaces/*"))} == {0}
    await ran(again, "ls")

    assert workspace.project.stat().st_mode & 0o077 == 0


def test_closing_affects_only_the_servers_directories(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir(mode=0o755)
    own.chmod(0o755)
    keep_private(tmp_path / "missing")

    assert not (tmp_path / "missing").exists()
    assert stat.S_IMODE(own.stat().st_mode) == 0o755


# Daemons that listen in the tree


@contextmanager
def daemon(path: Path) -> Iterator[list[bytes]]:
    """A daemon of the host with a socket in the tree; records what it received."""
    heard: list[bytes] = []
    with socket.socket(socket.AF_UNIX) as listener:
        # Through a short path: that of a test is too long for a socket address.
        folder = os.open(path.parent, os.O_PATH)
        listener.bind(f"/proc/self/fd/{folder}/{path.name}")
        os.close(folder)
        path.chmod(0o777)
        listener.listen()

        def serve() -> None:
            while True:
                try:
                    with listener.accept()[0] as client:
                        heard.append(client.recv(100))
                except OSError:
                    return

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield heard
        finally:
            listener.shutdown(socket.SHUT_RDWR)
    thread.join()


SPEAK = python(
    """
import ctypes, os, socket
for family in (socket.AF_UNIX, 1 | 1 << 32):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
        made = ctypes.CDLL(None).syscall(ctypes.c_long(41), ctypes.c_ulong(family), kind, 0)
        if made < 0:
            continue
        try:
            one = socket.socket(fileno=made)
            one.connect("daemon.sock")
            one.send(b"pwned")
        except OSError:
            pass
near, far = socket.socketpair()
near.send(b"pairs work")
with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
    client.send(b"x")
print(far.recv(100).decode(), flush=True)
"""
)


async def test_daemon_that_listens_in_the_tree_is_not_reached(workspace: WorkspaceFixture) -> None:
    with daemon(workspace.project / "daemon.sock") as heard:
        with socket.socket(socket.AF_UNIX) as host:
            folder = os.open(workspace.project, os.O_PATH)
            host.connect(f"/proc/self/fd/{folder}/daemon.sock")
            host.send(b"from the host")
            os.close(folder)
        assert "pairs work" in (await ran(workspace, SPEAK))["output"]
        started: dict[str, Any] = await workspace.result("bash_start", command=SPEAK)
        model_input = await ended(workspace, started["metadata"]["processId"])
        assert "pairs work" in started["output"] + model_input["output"]

    assert [said for said in heard if said] == [b"from the host"]


async def test_command_can_use_its_own_sockets(tmp_path: Path) -> None:
    said = await Stand(tmp_path).said(
        python(
            """
import socket
with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
    server.bind("/tmp/s")
    server.listen()
    client.connect("/tmp/s")
    print("connected")
"""
        )
    )
    assert said == "connected\n"


def test_files_copied_by_the_attacks_are_set_id() -> None:
    """Otherwise the attacks above would fail for lack of a set-id file."""
    assert os.stat("/usr/bin/passwd").st_mode & os.stat("/usr/bin/su").st_mode & stat.S_ISUID
