"""Protected paths of a background process: those that exist when it starts, and those that appear while it runs.

On the live tree nothing is checked before it is written. So existing protected paths are read-only in the process's
view, and new ones are found by repeated scans.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from toolcrib.core.agents import AgentRules
from toolcrib.core.packages import WORKFLOW
from toolcrib.core.paths import Mount, WorkspacePath
from toolcrib.policy.authorization import LOGS
from toolcrib.policy.protected_paths import ProtectedPaths
from toolcrib.tools.shell.shell import Shell

_GIT = ".git"


class ProtectedPathWatch:
    """The protected paths of one process's trees. ``rules`` are its agent's; few apply to a person's processes."""

    def __init__(self, shell: Shell, roots: Mapping[WorkspacePath, Path], rules: AgentRules | None) -> None:
        self._shell = shell
        self._roots = {workspace_path: path for workspace_path, path in roots.items() if workspace_path.mount.writable}
        self._protection = ProtectedPaths(rules.unprotected_paths) if rules is not None else None
        self._at_first: frozenset[WorkspacePath] = frozenset()

    def protects(self, path: WorkspacePath) -> str | None:
        """Return the name that protects a path.

        ``.git`` applies to everyone, because git changes it while it is scanned.
        """
        if path.name == _GIT:
            return _GIT
        if path.mount is Mount.STATE and path.path == LOGS.path:
            return LOGS.name
        return self._protection.protects_writing(path) if self._protection else None

    def closes(self, path: WorkspacePath) -> bool:
        return self.protects(path) is not None

    def closes_whole(self, root: WorkspacePath) -> bool:
        """Whether an agent's process may write nothing in a tree: @state with a workflow.

        Its writes would take effect immediately, without the checks of the workflow.
        """
        is_run = root.mount is Mount.STATE and self._protection is not None
        return is_run and os.path.lexists(self._roots[root] / WORKFLOW.name)

    def begin(self) -> dict[WorkspacePath, frozenset[str]]:
        """Return the existing protected paths, below each root."""
        found = {
            root: self._shell.protected_paths(path, root, self.protects) | _logs(root, path)
            for root, path in self._roots.items()
        }
        self._at_first = frozenset(_workspace_path(root, path) for root, paths in found.items() for path in paths)
        return found

    def new_paths(self) -> list[WorkspacePath]:
        """Return protected paths that appeared since the start. Empty for people, to whom names do not apply."""
        if self._protection is None:
            return []
        protects = self._protection.protects_writing
        now = {
            _workspace_path(root, path)
            for root, folder in self._roots.items()
            for path in self._shell.protected_paths(folder, root, protects)
        }
        return sorted(
            workspace_path
            for workspace_path in now
            if self._at_first.isdisjoint((workspace_path, *workspace_path.ancestors))
        )

    def denial(self) -> str | None:
        """Return why the process must end, or ``None``."""
        names = self.new_paths()
        if not names:
            return None
        return f"{', '.join(name.display for name in names[:5])} appeared while it ran; this path is protected"


def _workspace_path(root: WorkspacePath, path: str) -> WorkspacePath:
    return WorkspacePath(root.mount, f"/{path}", root.scope)


def _logs(root: WorkspacePath, folder: Path) -> frozenset[str]:
    """Return Toolcrib's log folder. Creates it if missing, because only an existing path can be made read-only."""
    if root.mount is not Mount.STATE:
        return frozenset()
    (folder / LOGS.name).mkdir(exist_ok=True)
    return frozenset({LOGS.name})
