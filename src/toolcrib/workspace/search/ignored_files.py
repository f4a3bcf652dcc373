"""What a search leaves out unless asked: ``.git``, and what ``.gitignore`` files ignore."""

import time
from collections.abc import Iterable
from functools import partial
from typing import Final

from toolcrib.core.files import File
from toolcrib.core.paths import Mount, WorkspacePath
from toolcrib.runtime.disk_threads import in_thread
from toolcrib.workspace.fs.gitignore import GitignoreRules, read_rules
from toolcrib.workspace.fs.mount_reader import NameFilter
from toolcrib.workspace.fs.mount_writer import MountWriter
from toolcrib.workspace.search.file_filter import is_nameable
from toolcrib.workspace.tree import WorkspaceTree

HINT: Final = (
    "Ignored files (.git, and what .gitignore ignores) were not searched. Use include_ignored to include them."
)
_GIT: Final = ".git"
_MOST_FOLDERS: Final = 200
_SURVEY_SECONDS: Final = 0.5


class IgnoredFiles:
    """Skips ignored files below a folder. A folder that is ignored itself is searched as a whole.

    Attributes:
        skipped: Something was skipped.
        folders: The first ignored folders that were skipped. Nothing in them can be re-included.
    """

    def __init__(self, rules: GitignoreRules, base: WorkspacePath) -> None:
        self.skipped = False
        self.folders: list[str] = []
        self._rules = rules
        self._base = base
        has_rules = base.mount in (Mount.PROJECT, Mount.CENTRAL)
        self._skips_none = not has_rules or _GIT in base.parts or rules.ignores(base, folder=True)

    @classmethod
    async def below(cls, tree: WorkspaceTree, base: WorkspacePath) -> "IgnoredFiles":
        """Return the ignored files below a folder."""
        rules = GitignoreRules(partial(read_rules, await tree.disks()))
        return await in_thread(cls, rules, base)

    def in_folder(self, folder: WorkspacePath) -> NameFilter:
        """Return which names of a folder are skipped, for ``MountReader.names``."""
        if self._skips_none:
            return _nothing
        is_ignored, above = self._rules.in_folder(folder), folder.path.rstrip("/")

        def is_skipped(name: str, *, folder: bool) -> bool:
            # Names that cannot be text are dropped anyway, and rules cannot match them.
            if name != _GIT and not (is_nameable(name) and is_ignored(name, folder=folder)):
                return False
            self.skipped = True
            if folder and len(self.folders) < _MOST_FOLDERS:
                self.folders.append(f"{above}/{name}")
            return True

        return is_skipped

    def skips(self, path: WorkspacePath) -> bool:
        """Whether a file is skipped."""
        if self._skips_none or not (_GIT in path.parts or self._rules.ignores(path, folder=False)):
            return False
        self.skipped = True
        return True

    def without(self, files: Iterable[File]) -> list[File]:
        """Return the files that are not skipped. Virtual files are never ignored."""
        return [file for file in files if file.is_virtual or not self.skips(file.state.path)]

    def survey(self, disk: MountWriter) -> None:
        """Walk the tree for a while, so that another program can skip the ignored folders."""
        until = time.monotonic() + _SURVEY_SECONDS
        for _ in disk.names(self._base, skip=self.in_folder):
            if time.monotonic() > until:
                return


def _nothing(name: str, *, folder: bool) -> bool:
    return False
