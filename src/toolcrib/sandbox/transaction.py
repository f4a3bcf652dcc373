"""A command as a transaction: it runs on copy-on-write views, and its effect is read before it is imported.

What commands write is in the staging directory of the server process.

The live tree is never changed here. Leaving the transaction drops everything that was not imported.
"""

import asyncio
import fcntl
import inspect
import os
import secrets
import shutil
import subprocess
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp
from typing import Final, Self

from toolcrib.core.errors import ToolFailed
from toolcrib.runtime.process_setup import make_private
from toolcrib.sandbox import proxy_bridge, resource_limits
from toolcrib.sandbox.bubblewrap import (
    GROUP,
    HOME,
    HOSTS,
    INTERPRETER,
    INTERPRETER_MOUNTS,
    PASSWD,
    BindMount,
    ViewMount,
)
from toolcrib.sandbox.command import CommandResult, HostContact, SandboxCommand, execute
from toolcrib.sandbox.contained_process import BASE, PATH, SpawnRequest, ViewLayer
from toolcrib.sandbox.copy_view import UNSHARE_ARGS, CopyView
from toolcrib.sandbox.egress_proxy import SOCKET, EgressNetwork, EgressProxy
from toolcrib.sandbox.overlay import FilesystemEffect, OverlayView, give
from toolcrib.sandbox.resource_limits import KeptUsage

WRITTEN: Final = {"tmp": "/tmp", "home": HOME, "shm": "/dev/shm"}  # noqa: S108 - a path in the sandbox
_PROXY: Final = f"http://127.0.0.1:{proxy_bridge.PORT}"
_PROXY_VARIABLES: Final = {
    **dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), _PROXY),
    # Node ignores the others without it.
    "NODE_USE_ENV_PROXY": "1",
}
_SYSTEM: Final = EgressNetwork()
_LOCK: Final = "lock"
# Folders that may wait for removal before commands wait for it too.
_MOST_LITTER: Final = 16
ETC: Final = {"passwd": PASSWD, "group": GROUP, "hosts": HOSTS}
# A project of which others own files is copied for each command, if it is not larger.
_LARGEST_FOREIGN: Final = 128 << 20
# Entries of a tree whose owners are looked at before each command: some milliseconds.
_MOST_LOOKED_AT: Final = 2_000
_ZERO: Final = "zero"
_ZERO_BYTES: Final = 1 << 40


Dispose = Callable[[Path], Awaitable[None]]
"""Removes the staging folder of an ended transaction, now or later."""


async def dropped(folder: Path) -> None:
    """Remove the staging folder right away."""
    await asyncio.to_thread(remove_staging, folder)


class Transaction:
    """Mounts with copy-on-write. Run any number of commands, then read the effect once.

    A context, with a new folder below ``staging`` that is always disposed of at the end.
    """

    _folder: Path

    def __init__(
        self,
        mounts: Sequence[ViewMount],
        staging: Path,
        *,
        overlay: bool,
        binary: str,
        largest_copy: int,
        network: EgressNetwork = _SYSTEM,
        dispose: Dispose = dropped,
    ) -> None:
        if not mounts:
            raise ToolFailed("A command needs at least one mount.")
        self._mounts = (*mounts, *INTERPRETER_MOUNTS)
        self._staging = staging
        self._network = network
        self._dispose = dispose
        self._overlay = overlay
        self._binary = binary
        self._largest_copy = largest_copy
        self._owner = mount_owner(mounts)
        self._views: list[tuple[ViewMount, OverlayView | CopyView | None]] = []
        self._effect: FilesystemEffect | None = None

    async def __aenter__(self) -> Self:
        self._folder = make_staging_dir(self._staging)
        preparing = asyncio.ensure_future(asyncio.to_thread(self.prepare))
        try:
            await asyncio.shield(preparing)
        except BaseException:
            # If it was cancelled, the thread still creates what is about to be removed.
            await asyncio.wait([preparing])
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.shield(self._dispose(self._folder))

    async def run(self, command: SandboxCommand, emit: Callable[[str], None] = lambda _: None) -> CommandResult:
        """Run one command on the views. Later commands in the same transaction see its changes."""
        if self._effect is not None:
            raise ToolFailed("The effect of this transaction was read already; begin another for the next command.")
        request = self.request(command)
        async with self.reaching(command.hosts) as egress:
            result = await execute(command, request, emit, watched=self.written, kept=self.kept_usage())
        return replace(result, contacted=egress.contacted) if egress else result

    @asynccontextmanager
    async def reaching(
        self, hosts: Sequence[str], on_contact: Callable[[HostContact], None] = lambda _: None
    ) -> AsyncIterator[EgressProxy | None]:
        """Run the proxy through which a command reaches its hosts, if it has any."""
        if not hosts:
            yield None
            return
        egress = EgressProxy(hosts, self._network, on_contact=on_contact)
        async with egress.listening(self._folder):
            if self._owner:
                os.chown(self._folder / SOCKET, *self._owner)
            yield egress
        (self._folder / SOCKET).unlink(missing_ok=True)

    def request(self, command: SandboxCommand, *, reads_input: bool = False) -> SpawnRequest:
        """Build the request to start a command on the views. One with hosts needs ``reaching`` while it runs."""
        cwd = working_directory(command.cwd, self._mounts)
        argv, environment, binds = command.argv(reads_input=reads_input), command.environment, self._binds()
        if command.hosts:
            argv = [INTERPRETER, "-I", "-S", "-c", inspect.getsource(proxy_bridge), *argv]
            environment |= _PROXY_VARIABLES
            binds.append(BindMount(self._base / SOCKET, proxy_bridge.PLACE, writable=True))
        layers = [ViewLayer(m.root, v.laid() if isinstance(v, OverlayView) else None) for m, v in self._views]
        return SpawnRequest(self._binary, argv, environment, cwd, binds, layers, self._folder, self._owner)

    @property
    def written(self) -> list[Path]:
        """The folders of the staging directory that commands can write."""
        return [*(self._folder / name for name in WRITTEN), *(view.upper for _, view in self._views if view)]

    def kept_usage(self) -> list[KeptUsage]:
        """Return the usage of the mounts that are written directly."""
        return [KeptUsage(mount.root, mount.kept_bytes) for mount in self._mounts if mount.kept_bytes]

    @property
    def tmp(self) -> Path:
        """The folder that commands see as /tmp. They choose its content."""
        return self._folder / "tmp"

    async def effect(self) -> FilesystemEffect:
        """Return what the commands did to the writable mounts. Bodies can be opened until the transaction ends."""
        if self._effect is None:
            self._effect = await asyncio.to_thread(self._read)
        return self._effect

    def prepare(self) -> None:
        """Create the staging content and the view of every mount."""
        furnish(self._folder)
        if self._owner:
            give(self._folder, self._owner)
        for number, mount in enumerate(self._mounts):
            folder = self._folder / str(number)
            view: OverlayView | CopyView | None = self._copy_of_foreign(mount, folder)
            if view is None and (view := self._view(mount, folder)):
                view.prepare(self._owner)
            self._views.append((mount, view))

    def _copy_of_foreign(self, mount: ViewMount, folder: Path) -> CopyView | None:
        """Return a prepared copy of a tree in which others own files, or which have another group; else None.

        A user namespace maps one user and one group, and an overlay cannot be written where it needs others
        (EOVERFLOW). A copy belongs to the command. Without one, because the tree is too large or a file cannot be
        read, only those files cannot be changed. As root, a copy could have what the tree's owner may not read.
        """
        if not self._overlay or self._owner or not mount.writable or mount.kept_bytes or not has_foreign(mount.root):
            return None
        view = CopyView(mount, folder, largest=min(self._largest_copy, _LARGEST_FOREIGN))
        try:
            view.prepare(None)
        except ToolFailed:
            remove_staging(folder)
            return None
        return view

    def _view(self, mount: ViewMount, folder: Path) -> OverlayView | CopyView | None:
        if mount.kept_bytes or not (mount.writable or mount.masked or mount.isolated):
            return None
        if self._overlay:
            return OverlayView(mount, folder)
        return CopyView(mount, folder, largest=self._largest_copy)

    def _read(self) -> FilesystemEffect:
        views = [view for mount, view in self._views if view and mount.writable]
        entries = (entry for view in views for entry in view.entries())
        return FilesystemEffect.of(entries, {view.mount.name: view.upper for view in views})

    def _binds(self) -> list[BindMount]:
        """List the binds as the fork server mounts them.

        If the server is root, below a root that every user may enter.
        """
        folder = self._base
        mounts = []
        for number, (mount, view) in enumerate(self._views):
            if view:
                source = folder / view.merged.relative_to(self._folder)
            else:
                source = Path(BASE, str(number)) if self._owner else mount.root
            mounts.append(BindMount(source, mount.target, writable=mount.writable))
        # A mount may be inside another: bind the outer one first.
        return [*furniture(folder), *sorted(mounts, key=lambda bind: bind.target)]

    @property
    def _base(self) -> Path:
        return Path(BASE, "staging") if self._owner else self._folder


def has_foreign(root: Path) -> bool:
    """Whether one of the first entries of a tree, by depth, has another owner or group than this process."""
    ours, looked_at, pending = (os.geteuid(), os.getegid()), 0, deque([os.fspath(root)])
    found = root.stat()
    if (found.st_uid, found.st_gid) != ours:
        return True
    while pending:
        with suppress(OSError), os.scandir(pending.popleft()) as entries:
            for entry in entries:
                found = entry.stat(follow_symlinks=False)
                if (found.st_uid, found.st_gid) != ours:
                    return True
                looked_at += 1
                if looked_at >= _MOST_LOOKED_AT:
                    return False
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)
    return False


def working_directory(wanted: str | None, mounts: Sequence[ViewMount]) -> str:
    """Return the working directory, by default the first mount. Raises ``ToolFailed`` if it is outside the mounts."""
    cwd = wanted or mounts[0].target
    is_inside = any(f"{cwd}/".startswith(f"{mount.target}/") for mount in mounts)
    if not is_inside or ".." in cwd.split("/") or "\0" in cwd:
        targets = ", ".join(mount.target for mount in mounts)
        raise ToolFailed(f"The working directory {cwd!r} is outside the mounts. Choose a directory below: {targets}")
    return cwd


def furnish(folder: Path) -> None:
    """Create in a staging folder what every view has beside the mounts."""
    for name in WRITTEN:
        (folder / name).mkdir(mode=0o700)
    for name, text in ETC.items():
        (folder / name).write_text(text)
    # A sparse file. The real /dev/zero allows unlimited shared memory mappings that only a cgroup counts.
    if not resource_limits.available():
        with open(folder / _ZERO, "wb") as zero:
            zero.truncate(_ZERO_BYTES)


def furniture(folder: Path) -> list[BindMount]:
    """Return the binds for those. ``folder`` is the staging folder as seen while the view is mounted."""
    binds = [BindMount(folder / name, target, writable=True) for name, target in WRITTEN.items()]
    binds += [BindMount(folder / name, f"/etc/{name}") for name in ETC]
    return binds if resource_limits.available() else [*binds, BindMount(folder / _ZERO, "/dev/zero")]


def make_staging_dir(staging: Path) -> Path:
    return Path(mkdtemp(prefix="command-", dir=staging)).resolve()


def mount_owner(mounts: Sequence[ViewMount]) -> tuple[int, int] | None:
    """Return the ids to map if the server is root: those of the first writable mount's owner."""
    if os.geteuid() != 0:
        return None
    mount = next((mount for mount in mounts if mount.writable), mounts[0])
    found = mount.root.stat()
    return found.st_uid, found.st_gid


def remove_staging(folder: Path) -> None:
    """Remove staging with whatever a command left: locked folders, hostile names, any depth."""
    for work in folder.glob("*-work*"):
        for locked in (work / "work", work / "work" / "incompat"):  # locked by overlayfs
            with suppress(OSError):
                locked.chmod(0o700)
    try:
        shutil.rmtree(folder)
    except (OSError, RecursionError):
        # As root of a user namespace, locked modes do not matter, and rm handles any depth.
        subprocess.run(  # noqa: S603 - fixed arguments
            [*UNSHARE_ARGS, "rm", "-rf", "--one-file-system", "--", str(folder)],
            env={"PATH": PATH},
            check=False,
            capture_output=True,
        )


class StagingDirectory:
    """A directory of this process. Creating it removes those of dead processes."""

    def __init__(self, above: Path) -> None:
        self._above = above
        self._folder: Path | None = None
        self._lock = -1
        self._sweeper = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sweeper")
        self._litter: deque[Future[None]] = deque()

    @property
    def folder(self) -> Path:
        """The directory, created at first use: a server that runs no commands leaves none."""
        if self._folder is None:
            self._folder = self._made()
        return self._folder

    async def dispose(self, folder: Path) -> None:
        """Remove a command's folder in the background. Waits only if many are waiting already."""
        while self._litter and (self._litter[0].done() or len(self._litter) >= _MOST_LITTER):
            await asyncio.wrap_future(self._litter.popleft())
        self._litter.append(self._sweeper.submit(remove_staging, folder))

    def close(self) -> None:
        """Wait for pending removals, and remove the directory."""
        self._sweeper.shutdown()
        if self._folder is not None:
            remove_staging(self._folder)
            os.close(self._lock)
            self._folder = None

    def _made(self) -> Path:
        make_private(self._above, self._above.parent)
        for left in self._above.iterdir():
            _drop_if_nobodys(left)
        folder = self._above / secrets.token_hex(8)
        folder.mkdir(mode=0o700)
        self._lock = _locked(folder)
        return folder


def _locked(folder: Path) -> int:
    """Return a descriptor that keeps the folder locked as long as this process lives."""
    # Renamed after it is locked, so that no other process can find it unlocked and take the folder for a dead one's.
    unnamed = folder / f"{_LOCK}.new"
    lock = os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    unnamed.rename(folder / _LOCK)
    return lock


def _drop_if_nobodys(folder: Path) -> None:
    # A folder without a lock is just being created by another process.
    with suppress(OSError):
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove_staging(folder)
        finally:
            os.close(lock)
