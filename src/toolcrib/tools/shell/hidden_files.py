"""Tells the caller of a command which files it did not see, so that nobody takes a hidden file for an empty one."""

import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from toolcrib.core.ids import SessionId
from toolcrib.sandbox.bubblewrap import ViewMount
from toolcrib.tools.shell.git_view import OutsideRepository, is_git_config

# The most names in one note.
_MAX_NAMED: Final = 20
# Hidden files that a session is told of without naming them.
_MAX_REMEMBERED: Final = 500
_SESSIONS: Final = 1_000
# The most folders of a path in a command or its output.
_MAX_PARTS: Final = 64
_WORD: Final = re.compile(r"[^\s'\"`;|&<>(){}=:,\[\]]+")
_USES_GIT: Final = re.compile(r"\bgit\b")
_TOO_LARGE_ID: Final = "Value too large for defined data type"


class HiddenFileNotes:
    """Remembers what each session was told."""

    def __init__(self) -> None:
        self._told: OrderedDict[SessionId, set[str]] = OrderedDict()

    def notes(
        self,
        session_id: SessionId | None,
        mounts: Sequence[ViewMount],
        repository: OutsideRepository | None,
        *,
        command: str,
        output: str,
    ) -> list[str]:
        """Return what to say after a command.

        Hidden files are named when a session's commands could first see them, and whenever a command or its output
        names them.
        """
        told = self._of(session_id)
        return [
            *_hidden_files(told, mounts, f"{command}\n{output}"),
            *(_git_notes(told, mounts, repository) if _USES_GIT.search(command) else ()),
            *_foreign_groups(output),
        ]

    def _of(self, session_id: SessionId | None) -> set[str] | None:
        if session_id is None:
            return None
        told = self._told.setdefault(session_id, set())
        self._told.move_to_end(session_id)
        if len(self._told) > _SESSIONS:
            self._told.popitem(last=False)
        return told


def _hidden_files(told: set[str] | None, mounts: Sequence[ViewMount], text: str) -> Iterator[str]:
    """Yield the note on hidden files. Git's own files are those of ``_git_notes``."""
    # By their paths in the view; shown relative to the project, which comes first.
    hidden = {
        place: path if mount is mounts[0] else place
        for mount in mounts
        for path in mount.masked
        if ".git" not in (place := f"{mount.target}/{path}").split("/")
    }
    if not hidden:
        return
    shown = {place: hidden[place] for place in _named(hidden, mounts[0].target, text)}
    if told is not None:
        nearest = sorted(hidden, key=lambda place: (place.count("/"), place))[:_MAX_REMEMBERED]
        shown |= {place: hidden[place] for place in nearest if place not in told}
        told.update(nearest)
    if shown:
        yield f"[hidden from commands, to which they look empty (they are not): {_listed(shown.values())}]"


def _named(hidden: Mapping[str, str], project: str, text: str) -> Iterator[str]:
    """Yield the hidden paths that a text names: by path, or by name where the path leads elsewhere."""
    by_name: dict[str, list[str]] = {}
    for place in hidden:
        by_name.setdefault(place.rpartition("/")[2], []).append(place)
    names: set[str] = set()
    for word in set(_WORD.findall(text)):
        parts = [part for part in word.split("/") if part != "."]
        start = "" if word.startswith("/") else f"{project}/"
        paths = [start + "/".join(parts[:count]) for count in range(1, min(len(parts), _MAX_PARTS) + 1)]
        exact = [path for path in paths if path in hidden]
        yield from exact
        if not exact and not word.startswith("/"):
            names.update(part for part in parts if part in by_name)
    for name in sorted(names):
        yield from by_name[name]


def _listed(paths: Iterable[str]) -> str:
    names = list(dict.fromkeys(paths))
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return ", ".join(names[:_MAX_NAMED]) + more


def _git_notes(
    told: set[str] | None, mounts: Sequence[ViewMount], repository: OutsideRepository | None
) -> Iterator[str]:
    if repository and repository.common is None:
        yield (
            f"[git does not work in commands here: `.git` names {repository.pointer}, which is outside the project. "
            "A person can run git there]"
        )
        return
    # Without a session nothing is remembered, and these say nothing about the command's own result.
    if told is None or "git" in told:
        return
    told.add("git")
    if repository:
        yield (
            f"[git: the project is a linked worktree of {repository.common}, which commands can only read: status, "
            "diff and log work, add and commit do not. A person can commit]"
        )
    configs = [path for mount in mounts for path in mount.substitutes if is_git_config(f".git/{path}")]
    if configs:
        yield (
            "[git: commands see .git/config without credentials, hooks, helpers, aliases, filters and includes; "
            "changes of other settings than a branch's remote need a person's approval]"
        )


def _foreign_groups(output: str) -> Iterator[str]:
    if _TOO_LARGE_ID in output:
        yield (
            f"[{_TOO_LARGE_ID!r}: the sandbox cannot change files of another user or group than the server's own in a "
            "project that is too large to copy. Use the file tools, or ask a person to change the files' group "
            "(chgrp -R)]"
        )
