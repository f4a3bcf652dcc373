"""Decides which paths the history ignores, by the .gitignore files of every folder above.

Follows git: the nearest file decides, its last matching rule wins, and nothing below an ignored folder can be
re-included. The .git folder is exempt. Rules are untrusted input: they are matched in linear time, their number and
size are bounded, and all of them together have a time budget.
"""

import time
from collections.abc import Callable
from typing import Final

from toolcrib.core.errors import CallDenied, ToolFailed
from toolcrib.core.paths import Mount, WorkspacePath, mount_root
from toolcrib.policy.patterns import GitIgnoreRules, PatternTooLargeError
from toolcrib.workspace.fs.mount_reader import NameFilter
from toolcrib.workspace.fs.mounts import WorkspaceDisks

RULES: Final = ".gitignore"
_GIT: Final = ".git"
_ZONES: Final = (Mount.PROJECT, Mount.CENTRAL)
_SECONDS: Final = 10.0
# Limits over all files together. The parsed rules stay in memory for one call.
_MOST_RULES: Final = 10_000
_MOST_FILES: Final = 1_000
# Of one file.
_MOST_BYTES: Final = 100_000


def read_rules(disk_of: WorkspaceDisks, path: WorkspacePath) -> bytes | None:
    """Read the ignore rules at a path on disk. Returns ``None`` if there are none."""
    try:
        return disk_of(path).read(path, limit=_MOST_BYTES)[0]
    except (ToolFailed, CallDenied):
        return None


class GitignoreRules:
    """Ignore rules of a tree. ``read`` returns the content of a .gitignore file, or ``None``."""

    def __init__(self, read: Callable[[WorkspacePath], bytes | None]) -> None:
        self._read = read
        self._rules: dict[WorkspacePath, GitIgnoreRules | None] = {}
        self._count = self._files = 0
        self._folders: dict[WorkspacePath, bool] = {}
        self._seconds = 0.0

    def ignores(self, path: WorkspacePath, *, folder: bool) -> bool:
        """Whether the history ignores a path."""
        if path.is_root or path.mount not in _ZONES or _GIT in path.parts:
            return False
        if folder:
            return self._ignores_folder(path)
        return self._ignores_folder(path.parent) or self._matches(path, "")

    def in_folder(self, folder: WorkspacePath) -> NameFilter:
        """Return a check of the names in a folder that is not ignored itself: cheaper than ``ignores`` for many."""
        above = (folder, *reversed(folder.ancestors)) if not folder.is_root else ()
        chain = []
        for each in (*above, mount_root(folder.mount, folder.scope)):
            if rules := self._rules_of(each):
                inside = folder.path[1:] if each.is_root else folder.path[len(each.path) + 1 :]
                chain.append((rules, f"{inside}/" if inside else ""))

        def is_ignored(name: str, *, folder: bool) -> bool:
            for rules, inside in chain:
                verdict = self._timed(rules, f"{inside}{name}/" if folder else inside + name)
                if verdict is not None:
                    return verdict
            return False

        return is_ignored

    def _ignores_folder(self, path: WorkspacePath) -> bool:
        if path.is_root:
            return False
        known = self._folders.get(path)
        if known is None:
            known = self._folders[path] = self._ignores_folder(path.parent) or self._matches(path, "/")
        return known

    def _matches(self, path: WorkspacePath, end: str) -> bool:
        """Apply the rules of the folders above, nearest first."""
        for folder in (*reversed(path.ancestors), mount_root(path.mount, path.scope)):
            rules = self._rules_of(folder)
            if rules is None:
                continue
            inside = path.path[1:] if folder.is_root else path.path[len(folder.path) + 1 :]
            verdict = self._timed(rules, inside + end)
            if verdict is not None:
                return verdict
        return False

    def _timed(self, rules: GitIgnoreRules, path: str) -> bool | None:
        began = time.perf_counter()
        verdict = rules.verdict(path)
        self._seconds += time.perf_counter() - began
        if self._seconds > _SECONDS:
            raise ToolFailed(
                f"The {RULES} files take more than {_SECONDS:.0f} s to evaluate. Nothing was changed. "
                "Write fewer or simpler rules."
            )
        return verdict

    def _rules_of(self, folder: WorkspacePath) -> GitIgnoreRules | None:
        if folder not in self._rules:
            path = folder.child(RULES)
            self._rules[folder] = self._parsed(path, self._read(path))
        return self._rules[folder]

    def _parsed(self, path: WorkspacePath, body: bytes | None) -> GitIgnoreRules | None:
        lines = [line for line in (body or b"").decode(errors="replace").splitlines() if line and line[0] != "#"]
        if not lines:
            return None
        self._files += 1
        self._count += len(lines)
        if self._files > _MOST_FILES or self._count > _MOST_RULES:
            raise ToolFailed(
                f"More than {_MOST_FILES:,} {RULES} files, or more than {_MOST_RULES:,} rules. "
                "Nothing was changed. Use fewer."
            )
        try:
            return GitIgnoreRules(lines)
        except PatternTooLargeError as error:
            raise ToolFailed(f"{path.display} cannot be evaluated: {error} Nothing was changed.") from error
