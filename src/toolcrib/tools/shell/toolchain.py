"""Programs of this machine that commands can use beside the system's, and private caches for them.

Directories of programs are mounted read-only at their own paths, without what protected names hide. A cache is a
directory of one agent in one workspace; it is kept between commands and is no part of the workspace.
"""

import asyncio
import os
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from secrets import token_hex
from typing import Final

from toolcrib.core.callers import Caller
from toolcrib.core.paths import Mount, mount_root
from toolcrib.policy.protected_paths import ProtectedPaths
from toolcrib.runtime.process_setup import make_private
from toolcrib.sandbox.bubblewrap import HOME, ViewMount
from toolcrib.sandbox.resource_limits import exceeds
from toolcrib.sandbox.transaction import remove_staging
from toolcrib.workspace.fs.protected_scan import ProtectedPathScanner

# A directory that ends so is announced to its program, whose own default is below the sandbox's empty home.
_ANNOUNCED: Final = {
    ".pyenv": "PYENV_ROOT",
    ".rustup": "RUSTUP_HOME",
    "uv/python": "UV_PYTHON_INSTALL_DIR",
    "uv/tools": "UV_TOOL_DIR",
}
_CACHE: Final = f"{HOME}/.cache"
# Programs whose cache is elsewhere by default. A cache is another mount, to which uv cannot link.
_CACHED: Final = {
    "CARGO_HOME": f"{_CACHE}/cargo",
    "GOMODCACHE": f"{_CACHE}/go-mod",
    "NPM_CONFIG_CACHE": f"{_CACHE}/npm",
    "UV_CACHE_DIR": f"{_CACHE}/uv",
    "UV_LINK_MODE": "copy",
}
# Measuring a cache reads all of its folders.
_MEASURED_EVERY: Final = 50


class Toolchain:
    """The directories with programs. ``path`` is the PATH of commands, if not the system's."""

    def __init__(self, directories: Sequence[Path], path: str | None = None) -> None:
        self._directories = tuple(directories)
        self._path = path
        self._hidden = ProtectedPathScanner()

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables for commands."""
        announced = {
            variable: str(directory)
            for directory in self._directories
            for end, variable in _ANNOUNCED.items()
            if str(directory).endswith(f"/{end}")
        }
        return {**announced, **({"PATH": self._path} if self._path else {})}

    def mounts(self, *, overlay: bool) -> list[ViewMount]:
        """Return the mounts as of now. Without overlays, a directory with protected names is left out.

        The names that are lifted for an agent are those of its workspace, so that none is lifted here.
        """
        found = []
        for number, directory in enumerate(self._directories):
            if not directory.is_dir() or directory.resolve() != directory:
                continue
            masked = self._hidden.below(directory, mount_root(Mount.PROJECT), ProtectedPaths().protects_reading)
            if overlay or not masked:
                found.append(ViewMount(f"tools{number}", directory, str(directory), masked=masked))
        return found


class CommandCaches:
    """The caches below a directory, each of at most so many bytes; with 0, there are none."""

    def __init__(self, workspaces: Path, *, most_bytes: int) -> None:
        self._workspaces = workspaces
        self._most_bytes = most_bytes
        self._in_use: Counter[Path] = Counter()
        self._uses: Counter[Path] = Counter()

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables for commands."""
        return _CACHED if self._most_bytes else {}

    @asynccontextmanager
    async def mounted(self, caller: Caller, project: Path) -> AsyncIterator[list[ViewMount]]:
        """Provide the caller's cache while a command runs. One that has grown too large is emptied first."""
        if not self._most_bytes:
            yield []
            return
        folder = self._workspaces / str(caller.workspace_id) / "caches" / str(caller.agent_id or caller.user_id)
        is_free = not self._in_use[folder]
        self._in_use[folder] += 1
        try:
            await asyncio.to_thread(self._prepare, folder, project, measure=is_free and self._is_due(folder))
            yield [ViewMount("cache", folder, _CACHE, writable=True, kept_bytes=self._most_bytes)]
        finally:
            self._in_use[folder] -= 1

    def _is_due(self, folder: Path) -> bool:
        self._uses[folder] += 1
        return self._uses[folder] % _MEASURED_EVERY == 1

    def _prepare(self, folder: Path, project: Path, *, measure: bool) -> None:
        if measure and folder.is_dir() and exceeds(folder, self._most_bytes):
            aside = folder.with_name(f"{folder.name}-{token_hex(4)}")
            folder.rename(aside)
            remove_staging(aside)
        if folder.is_dir():
            return
        make_private(folder, self._workspaces.parent)
        if os.geteuid() == 0:
            shutil.chown(folder, project.stat().st_uid, project.stat().st_gid)
