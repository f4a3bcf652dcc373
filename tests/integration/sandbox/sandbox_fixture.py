"""A tree, a read-only package folder and a real sandbox, for the tests of the sandbox."""

import os
import stat
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path

from toolcrib.sandbox.bubblewrap import ViewMount
from toolcrib.sandbox.command import CommandResult, SandboxCommand
from toolcrib.sandbox.overlay import ChangedEntry, EntryChange, EntryType, FilesystemEffect
from toolcrib.sandbox.sandbox import Sandbox
from toolcrib.sandbox.transaction import Transaction

# Probed once per process: the probe takes most of a second.
SANDBOX = Sandbox()
COPYING = Sandbox(overlay=False)


@dataclass(frozen=True)
class Stand:
    folder: Path
    sandbox: Sandbox = SANDBOX

    def __post_init__(self) -> None:
        for made in (self.tree, self.shelf, self.staging):
            made.mkdir(exist_ok=True)

    @property
    def tree(self) -> Path:
        return self.folder / "tree"

    @property
    def shelf(self) -> Path:
        return self.folder / "shelf"

    @property
    def staging(self) -> Path:
        return self.folder / "staging"

    def begin(self, *, masked: Collection[str] = ()) -> AbstractAsyncContextManager[Transaction]:
        mounts = [
            ViewMount("project", self.tree, "/mnt/project", writable=True, masked=frozenset(masked)),
            ViewMount("pkg", self.shelf, "/mnt/pkg"),
        ]
        return self.sandbox.transaction(mounts, self.staging)

    async def run(
        self,
        command: str | SandboxCommand,
        emit: Callable[[str], None] = lambda _: None,
        *,
        masked: Collection[str] = (),
    ) -> CommandResult:
        async with self.begin(masked=masked) as view:
            return await view.run(SandboxCommand(command) if isinstance(command, str) else command, emit)

    async def said(self, command: str | SandboxCommand, *, masked: Collection[str] = ()) -> str:
        return (await self.run(command, masked=masked)).output.text


def python(program: str) -> str:
    """Return a command that runs a Python program inside."""
    return f"exec /usr/bin/python3 -I - <<'PROGRAM'\n{program}\nPROGRAM"


def snapshot(tree: Path) -> dict[str, tuple[str, int, bytes]]:
    """Return every path below with its type, mode and bytes. Unlocks locked folders after reading their modes."""
    return dict(_walk(tree, "."))


def apply(effect: FilesystemEffect, tree: Path) -> None:
    """Apply an effect to a tree, in the given order."""
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in _unlocked(tree)}
    for entry in effect:
        path = tree / entry.path
        if entry.change is EntryChange.DELETED:
            path.rmdir() if entry.kind is EntryType.FOLDER else path.unlink()
            modes.pop(path, None)
            continue
        _put(effect, entry, path)
        if entry.kind is not EntryType.LINK:
            modes[path] = entry.mode
    for path in sorted(modes, reverse=True):
        path.chmod(modes[path])


def _put(effect: FilesystemEffect, entry: ChangedEntry, path: Path) -> None:
    if entry.kind is EntryType.FOLDER:
        if entry.change is EntryChange.CREATED:
            path.mkdir()
    elif entry.kind is EntryType.LINK:
        assert entry.target is not None
        if entry.change is EntryChange.MODIFIED:
            path.unlink()
        path.symlink_to(entry.target)
    elif entry.body:
        # Replaced, not rewritten: another hard link to the same file keeps its bytes.
        path.unlink(missing_ok=True)
        with effect.open(entry) as body:
            path.write_bytes(body.read())


def _unlocked(tree: Path) -> Iterator[Path]:
    """Yield every folder, each before it is unlocked."""
    yield tree
    tree.chmod(stat.S_IMODE(tree.stat().st_mode) | 0o700)
    for child in list(os.scandir(tree)):
        if child.is_dir(follow_symlinks=False):
            yield from _unlocked(Path(child.path))


def _walk(path: Path, name: str) -> Iterator[tuple[str, tuple[str, int, bytes]]]:
    found = path.lstat()
    mode = stat.S_IMODE(found.st_mode)
    if stat.S_ISLNK(found.st_mode):
        yield name, ("link", 0, os.fsencode(os.readlink(path)))
    elif stat.S_ISDIR(found.st_mode):
        yield name, ("folder", mode, b"")
        path.chmod(mode | 0o700)
        for child in sorted(os.listdir(path)):
            yield from _walk(path / child, f"{name}/{child}")
    elif stat.S_ISREG(found.st_mode):
        path.chmod(mode | 0o400)
        yield name, ("file", mode, path.read_bytes())
    else:
        yield name, ("special", mode, b"")
