"""A command as a transaction: it runs on copy-on-write views, and its effect is read before it is imported.

The live tree is never changed here. Leaving the transaction drops everything that was not imported.
"""

import asyncio
import inspect
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp
from typing import Final

from toolcrib.core.errors import ToolFailed
from toolcrib.sandbox import proxy_bridge, resource_limits
from toolcrib.sandbox.bubblewrap import (
    GROUP,
    HOME,
    HOSTS,
    INTERPRETER,
    PASSWD,
    BindMount,
    ViewMount,
    arguments,
    interpreter_mounts,
)
from toolcrib.sandbox.command import CommandResult, SandboxCommand, execute
from toolcrib.sandbox.copy_view import CopyView
from toolcrib.sandbox.egress_proxy import SOCKET, EgressNetwork, EgressProxy
from toolcrib.sandbox.filesystem_effect import FilesystemEffect
from toolcrib.sandbox.fork_client import BASE, PATH, SpawnRequest, ViewLayer, staged
from toolcrib.sandbox.isolation import Isolation
from toolcrib.sandbox.overlay import OverlayView, give, ordered

WRITTEN: Final = {"tmp": "/tmp", "home": HOME, "shm": "/dev/shm"}  # noqa: S108 - a path in the sandbox
_PROXY_VARIABLES: Final = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
_SYSTEM: Final = EgressNetwork()
ETC: Final = {"passwd": PASSWD, "group": GROUP, "hosts": HOSTS}
_ZERO: Final = "zero"
_ZERO_BYTES: Final = 1 << 40


class Transaction:
    """Mounts with copy-on-write. Run any number of commands, then read the effect once."""

    def __init__(
        self,
        mounts: Sequence[ViewMount],
        folder: Path,
        *,
        isolation: Isolation,
        binary: str,
        largest_copy: int,
        network: EgressNetwork,
    ) -> None:
        self._mounts = (*mounts, *interpreter_mounts())
        self._network = network
        self._folder = folder
        self._isolation = isolation
        self._binary = binary
        self._largest_copy = largest_copy
        self._owner = mount_owner(mounts)
        self._views: list[tuple[ViewMount, OverlayView | CopyView | None]] = []
        self._effect: FilesystemEffect | None = None

    async def run(self, command: SandboxCommand, emit: Callable[[str], None] = lambda _: None) -> CommandResult:
        """Run one command on the views. Later commands in the same transaction see its changes."""
        if self._effect is not None:
            raise ToolFailed("The effect of this transaction was read already; begin another for the next command.")
        cwd = command.cwd or self._mounts[0].target
        self._reject_outside(cwd)
        if not command.hosts:
            return await self._run(command, emit, cwd)
        egress = EgressProxy(command.hosts, self._network)
        async with egress.listening(self._folder):
            if self._owner:
                os.chown(self._folder / SOCKET, *self._owner)
            result = await self._run(command, emit, cwd)
        (self._folder / SOCKET).unlink(missing_ok=True)
        return replace(result, contacted=egress.contacted)

    async def _run(self, command: SandboxCommand, emit: Callable[[str], None], cwd: str) -> CommandResult:
        argv, environment, binds = command.argv(), command.environment, self._binds()
        if command.hosts:
            argv = [INTERPRETER, "-I", "-S", "-c", inspect.getsource(proxy_bridge), *argv]
            environment |= dict.fromkeys(_PROXY_VARIABLES, f"http://127.0.0.1:{proxy_bridge.PORT}")
            binds.append(BindMount(self._base / SOCKET, proxy_bridge.PLACE, writable=True))

        def words(program: int, status: int) -> SpawnRequest:
            inner = arguments(
                self._binary,
                argv,
                binds=binds,
                cwd=cwd,
                environment=environment,
                seccomp=program,
                status=status,
            )
            return staged(inner, self._layers(), staging=self._folder, root_for=self._owner)

        return await execute(command, words, emit, watched=self._watched(), level=self._isolation.level)

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
            view = self._view(mount, self._folder / str(number))
            if view:
                view.prepare(self._owner)
            self._views.append((mount, view))

    def _view(self, mount: ViewMount, folder: Path) -> OverlayView | CopyView | None:
        if not mount.writable and not mount.masked:
            return None
        if self._isolation.overlay:
            return OverlayView(mount, folder)
        return CopyView(mount, folder, largest=self._largest_copy)

    def _read(self) -> FilesystemEffect:
        views = [view for mount, view in self._views if view and mount.writable]
        entries = ordered(entry for view in views for entry in view.entries())
        return FilesystemEffect(entries, {view.mount.name: view.upper for view in views})

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

    def _layers(self) -> list[ViewLayer]:
        return [
            ViewLayer(mount.root, view.laid() if isinstance(view, OverlayView) else None) for mount, view in self._views
        ]

    def _watched(self) -> list[Path]:
        return [*(self._folder / name for name in WRITTEN), *(view.upper for _, view in self._views if view)]

    def _reject_outside(self, cwd: str) -> None:
        parts = cwd.split("/")
        inside = any(cwd == mount.target or cwd.startswith(f"{mount.target}/") for mount in self._mounts)
        if not inside or ".." in parts or "\0" in cwd:
            targets = ", ".join(mount.target for mount in self._mounts)
            raise ToolFailed(
                f"The working directory {cwd!r} is outside the mounts. Choose a directory below: {targets}"
            )


Dispose = Callable[[Path], Awaitable[None]]
"""Removes the staging folder of an ended transaction, now or later."""


async def dropped(folder: Path) -> None:
    """Remove the staging folder right away."""
    await asyncio.to_thread(remove_staging, folder)


@asynccontextmanager
async def begin(
    mounts: Sequence[ViewMount],
    staging: Path,
    *,
    isolation: Isolation,
    binary: str,
    largest_copy: int,
    network: EgressNetwork = _SYSTEM,
    dispose: Dispose = dropped,
) -> AsyncIterator[Transaction]:
    """Start a transaction with a new staging folder below ``staging``, which is always disposed of at the end."""
    if not mounts:
        raise ToolFailed("A command needs at least one mount.")
    folder = make_staging_dir(staging)
    try:
        transaction = Transaction(
            mounts, folder, isolation=isolation, binary=binary, largest_copy=largest_copy, network=network
        )
        await _to_the_end(transaction.prepare)
        yield transaction
    finally:
        await asyncio.shield(dispose(folder))


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


async def _to_the_end(work: Callable[[], None]) -> None:
    """Run in a thread and wait for it even when cancelled: what it creates is about to be removed."""
    done = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        await asyncio.shield(done)
    except asyncio.CancelledError:
        await asyncio.wait([done])
        raise


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
            [
                "/usr/bin/unshare",
                "--user",
                "--map-root-user",
                "--",
                "rm",
                "-rf",
                "--one-file-system",
                "--",
                str(folder),
            ],
            env={"PATH": PATH},
            check=False,
            capture_output=True,
        )
