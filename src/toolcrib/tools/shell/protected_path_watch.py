"""Names that a background process may not write: those that stand when it begins, and those that come while it runs.

On the live tree nothing is judged before it counts. So what stands under a protected name is fixed in the process's
view, and what comes up under one is found by looking again and again.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from toolcrib.core.agents import AgentRules
from toolcrib.core.packages import WORKFLOW
from toolcrib.core.paths import Mount, WorkspacePath, shown
from toolcrib.policy.path_guard import LOGS
from toolcrib.policy.protected_paths import ProtectedPaths
from toolcrib.tools.shell.shell import Shell

_GIT = ".git"


class ProtectedPathWatch:
    """The closed names of one process's trees. ``rules`` are its agent's; a person's processes are bound by few."""

    def __init__(self, shell: Shell, roots: Mapping[WorkspacePath, Path], rules: AgentRules | None) -> None:
        self._shell = shell
        self._roots = {place: path for place, path in roots.items() if place.mount.writable}
        self._protection = ProtectedPaths(rules.unprotect) if rules is not None else None
        self._at_first: frozenset[WorkspacePath] = frozenset()

    def protects(self, place: WorkspacePath) -> str | None:
        """The name by which a place is closed. A repository is for everyone: its files change while it is looked at."""
        if place.name == _GIT:
            return _GIT
        if place.mount is Mount.STATE and place.path == LOGS.path:
            return LOGS.name
        return self._protection.protects_writing(place) if self._protection else None

    def closes(self, place: WorkspacePath) -> bool:
        return self.protects(place) is not None

    def closes_whole(self, root: WorkspacePath) -> bool:
        """Whether an agent's process may write nothing in a tree: @state, where a workflow runs.

        What it wrote would count at once, and no rule of the workflow could be held against it.
        """
        is_run = root.mount is Mount.STATE and self._protection is not None
        return is_run and os.path.lexists(self._roots[root] / WORKFLOW.name)

    def begin(self) -> dict[WorkspacePath, frozenset[str]]:
        """What stands under closed names now, below each root."""
        found = {
            root: self._shell.protected_paths(path, root, self.protects) | _logs(root, path)
            for root, path in self._roots.items()
        }
        self._at_first = frozenset(_place(root, path) for root, paths in found.items() for path in paths)
        return found

    def new_paths(self) -> list[WorkspacePath]:
        """What stands under closed names now and did not when it began. Not for people, whom names do not bind."""
        if self._protection is None:
            return []
        protects = self._protection.protects_writing
        now = {
            _place(root, path)
            for root, folder in self._roots.items()
            for path in self._shell.protected_paths(folder, root, protects)
        }
        return sorted(place for place in now if self._at_first.isdisjoint((place, *place.ancestors)))

    def objection(self) -> str | None:
        """Why the process must end, if it must."""
        names = self.new_paths()
        if not names:
            return None
        return f"{', '.join(map(shown, names[:5]))} came up while it ran, a name that is closed to agents"


def _place(root: WorkspacePath, path: str) -> WorkspacePath:
    return WorkspacePath(root.mount, f"/{path}", root.scope)


def _logs(root: WorkspacePath, folder: Path) -> frozenset[str]:
    """Where Toolcrib writes; made if it is missing, since only what stands there can be fixed."""
    if root.mount is not Mount.STATE:
        return frozenset()
    (folder / LOGS.name).mkdir(exist_ok=True)
    return frozenset({LOGS.name})
