"""Selects the files that a search reads: matching the path pattern, nameable and readable by the caller."""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

from toolcrib.core.errors import BadArguments, CallDenied
from toolcrib.core.files import EntryKind, File
from toolcrib.core.paths import Mount, WorkspacePath, is_valid_name
from toolcrib.policy.patterns import ExpressionSet, PatternTooLargeError, literal_expression
from toolcrib.runtime.disk_threads import in_thread
from toolcrib.workspace.fs.mount_reader import NameFilter
from toolcrib.workspace.fs.mount_writer import MountWriter, is_temporary
from toolcrib.workspace.tree import WorkspaceTree

_PIECE = re.compile(r"\\(.)|([%*])|(_)|(.)", re.DOTALL)
# A name suffix that ripgrep accepts unescaped.
_ENDING = re.compile(r".*[%*]([A-Za-z0-9.\-]+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class LikePattern:
    """A parsed path pattern. ``ending`` is the suffix that every matching name certainly has."""

    expressions: ExpressionSet
    ending: str = ""

    def matches(self, path: str) -> bool:
        """Whether the pattern matches a path."""
        return self.expressions.any(path)


def like_pattern(pattern: str) -> LikePattern:
    """Parse a ``path_pattern``: SQL LIKE with ``*`` for ``%``, such as ``%.rs``, ``src/*`` or ``/src/%``.

    Case-insensitive. Without a wildcard it matches any path that contains it.
    """
    text = pattern.strip().removeprefix("./")
    if "%" not in text and "*" not in text:
        return LikePattern(_compiled(f".*{literal_expression(text)}.*"))
    if not text.startswith(("/", "%", "*")):
        # It may start at any folder.
        text = f"%/{text}"
    ending = _ENDING.fullmatch(text)
    return LikePattern(_compiled(_expression(text)), ending[1] if ending else "")


def _expression(text: str) -> str:
    return "".join(
        ".*" if many else "." if one else literal_expression(escaped or plain)
        for escaped, many, one, plain in _PIECE.findall(text)
    )


def _compiled(expression: str) -> ExpressionSet:
    try:
        return ExpressionSet([expression], whole=True, ignore_case=True)
    except PatternTooLargeError as error:
        raise BadArguments({"path_pattern": str(error)}) from error


def order_of(path: str) -> str:
    """Sort key that orders paths folder by folder, as ripgrep walks them."""
    return path.replace("/", "\0")


class SkippedFiles(Protocol):
    """Files that a search skips."""

    folders: list[str]

    def in_folder(self, folder: WorkspacePath) -> NameFilter: ...
    def skips(self, path: WorkspacePath) -> bool: ...
    def without(self, files: Iterable[File]) -> list[File]: ...


class FileFilter:
    """Decides whether a path is searched.

    ``elsewhere`` are paths whose content on disk is not current; ``skipped`` those that nobody asked for.
    """

    def __init__(
        self,
        tree: WorkspaceTree,
        paths: LikePattern | None,
        elsewhere: Collection[str],
        skipped: SkippedFiles | None = None,
    ) -> None:
        self._tree = tree
        self._paths = paths
        self._elsewhere = elsewhere
        self._skipped = skipped

    @property
    def skipped_folders(self) -> Sequence[str]:
        """Folders for ripgrep to skip. This filter skips more than these."""
        return self._skipped.folders if self._skipped is not None else ()

    @property
    def name_globs(self) -> tuple[str, ...]:
        """Globs for ripgrep, which may select more files than this filter."""
        return (f"*{self._paths.ending}",) if self._paths and self._paths.ending else ()

    def workspace_path(self, path: str) -> WorkspacePath | None:
        """Return the workspace path of a path on disk if it is searched."""
        if path in self._elsewhere or not self._matches_path(path) or not can_be_named(path):
            return None
        workspace_path = WorkspacePath(Mount.PROJECT, path)
        if self._skipped is not None and self._skipped.skips(workspace_path):
            return None
        return workspace_path if self._may_read(workspace_path) else None

    def readable(self, files: Iterable[File]) -> list[File]:
        """Return those files without content on disk that are searched."""
        files = files if self._skipped is None else self._skipped.without(files)
        return [
            file
            for file in files
            if file.state.kind is EntryKind.FILE
            and self._matches_path(file.state.path.path)
            and self._may_read(file.state.path)
        ]

    async def count_denied(self, disk: MountWriter, off_disk: Iterable[File]) -> int:
        """Count selected files that the caller may not read.

        Counts all: a count of matching ones would reveal content.
        """
        if not self._tree.caller.is_agent:
            return 0
        paths = await in_thread(self._files, disk)
        paths |= {file.state.path.path for file in off_disk if file.state.kind is EntryKind.FILE}
        meant = (WorkspacePath(Mount.PROJECT, path) for path in paths if self._matches_path(path))
        return sum(not self._may_read(workspace_path) for workspace_path in meant)

    def _files(self, disk: MountWriter) -> set[str]:
        root = WorkspacePath(Mount.PROJECT, "/")
        names = disk.names(root, skip=self._skipped.in_folder if self._skipped else None)
        return {path for path, _, kind in names if kind is EntryKind.FILE and can_be_named(path)}

    def _matches_path(self, path: str) -> bool:
        return self._paths is None or self._paths.matches(path)

    def _may_read(self, path: WorkspacePath) -> bool:
        try:
            self._tree.guard.check_read(path)
        except CallDenied:
            return False
        return True


def can_be_named(path: str) -> bool:
    """Whether a path found on disk is a valid name and not a temporary file of Toolcrib."""
    return all(map(is_nameable, path[1:].split("/")))


@lru_cache(maxsize=65_536)
def is_nameable(name: str) -> bool:
    """Whether a name found on disk is valid and not that of a temporary file of Toolcrib."""
    return is_valid_name(name) and not is_temporary(name)
