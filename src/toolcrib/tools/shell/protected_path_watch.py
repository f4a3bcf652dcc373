"""Protected paths of a background process: those that exist when it starts, and those that appear while it runs.

On the live tree nothing is checked before it is written. So existing protected paths are read-only in the process's
view, and new ones are found by repeated scans, as are new links that lead out of the workspace.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from toolcrib.core.agents import AgentRules
from toolcrib.core.packages import WORKFLOW
from toolcrib.core.paths import Mount, WorkspacePath
from toolcrib.policy.authorization import LOGS
from toolcrib.policy.protected_paths import OUTWARD_LINK, ProtectedPaths
from toolcrib.tools.shell.shell import Shell
from toolcrib.workspace.fs.outward_links import leads_out

_GIT = ".git"


class ProtectedPathWatch:
    """The protected paths of one process's trees. ``rules`` are its agent's; few apply to a person's processes."""

    def __init__(self, shell: Shell, roots: Mapping[WorkspacePath, Path], rules: AgentRules | None) -> None:
        self._shell = shell
        self._roots = {workspace_path: path for workspace_path, path in roots.items() if workspace_path.mount.writable}
        self._protection = ProtectedPaths(rules.unprotected_paths) if rules is not None else None
        self._at_first: frozenset[WorkspacePath] = frozenset()
        self._asks_about_links = rules is not None and OUTWARD_LINK not in rules.unprotected_paths
        # The links that were there, and new ones that do not lead out, with their targets.
        self._links: dict[WorkspacePath, str] = {}

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
        found = {}
        for root, path in self._roots.items():
            names, links = self._shell.protected_paths_and_links(path, root, self.protects)
            found[root] = names | _logs(root, path)
            for link in links if self._asks_about_links else ():
                if (target := _target(path / link)) is not None:
                    self._links[_workspace_path(root, link)] = target
        self._at_first = frozenset(_workspace_path(root, path) for root, paths in found.items() for path in paths)
        return found

    def new_paths(self) -> list[WorkspacePath]:
        """Return protected paths and links that lead out which appeared since the start.

        Empty for people, to whom these rules do not apply.
        """
        if self._protection is None:
            return []
        new: set[WorkspacePath] = set()
        for root, folder in self._roots.items():
            names, links = self._shell.protected_paths_and_links(folder, root, self._protection.protects_writing)
            for path in (_workspace_path(root, name) for name in names):
                if self._at_first.isdisjoint((path, *path.ancestors)):
                    new.add(path)
            if self._asks_about_links:
                new |= {path for link in links if self._leads_out(folder, path := _workspace_path(root, link))}
        return sorted(new)

    def denial(self) -> str | None:
        """Return why the process must end, or ``None``."""
        names = self.new_paths()
        if not names:
            return None
        why = "this path is protected"
        if not any(map(self.closes, names)):
            why = "it leads out of the workspace"
        return f"{', '.join(name.display for name in names[:5])} appeared while it ran; {why}"

    def _leads_out(self, root: Path, path: WorkspacePath) -> bool:
        target = _target(root.joinpath(*path.parts))
        if target is None or self._links.get(path) == target:
            return False
        if leads_out(root, path, target):
            return True
        self._links[path] = target
        return False


def _workspace_path(root: WorkspacePath, path: str) -> WorkspacePath:
    return WorkspacePath(root.mount, f"/{path}", root.scope)


def _target(link: Path) -> str | None:
    try:
        return os.readlink(link)
    except OSError:
        return None


def _logs(root: WorkspacePath, folder: Path) -> frozenset[str]:
    """Return Toolcrib's log folder. Creates it if missing, because only an existing path can be made read-only."""
    if root.mount is not Mount.STATE:
        return frozenset()
    (folder / LOGS.name).mkdir(exist_ok=True)
    return frozenset({LOGS.name})
