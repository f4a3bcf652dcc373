"""Completions of the message box: commands after ``/``, and paths of the workspace after ``@``."""

import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from rich.text import Text

from toolcrib.cli.slash_commands import SlashCommand, completions, help_lines
from toolcrib.cli.terminal_text import one_line
from toolcrib.core.errors import ToolcribError
from toolcrib.sdk.workspace_location import WorkspaceLocation

# A name that is being typed; in quotes it may have spaces.
_TYPED_NAME = re.compile(r'(?<![^\s(\[{])@("[^"\n]*|[^\s"@]*)$')
_SHOWN = 8
_MOST_PATHS = 200_000
# Names change while people and agents work. A list that is older is loaded again when it is used.
_FRESH_SECONDS = 10.0
_MOST_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class InputCompletion:
    """A text that replaces what was typed before the cursor."""

    typed: str
    text: str
    label: Text
    # Enter takes it, as Tab does. A command is sent as it was typed.
    on_enter: bool = False


def command_completions(before: str) -> list[InputCompletion]:
    """Returns the commands that start with the text before the cursor."""
    found: list[SlashCommand] = completions(before)
    return [
        InputCompletion(before, f"{one.name} " if one.takes else one.name, label)
        for one, label in zip(found, help_lines(found), strict=True)
    ]


class WorkspacePaths:
    """The paths of a workspace without ignored ones, loaded in a thread. ``notify`` is called after each load."""

    def __init__(self, location: WorkspaceLocation, notify: Callable[[], object]) -> None:
        self._location = location
        self._notify = notify
        self._loaded_at: float | None = None
        self._is_loading = False
        self._listed = PathList(())

    def completions(self, before: str) -> list[InputCompletion]:
        """Returns the paths that fit the name before the cursor; none if it names no file."""
        found = _TYPED_NAME.search(before)
        if found is None:
            return []
        self._load_if_old()
        typed = found[1].removeprefix('"')
        paths = self._listed.closest(typed, _SHOWN)
        return [InputCompletion(found[0], mention(path), Text(one_line(path, 200)), on_enter=True) for path in paths]

    def _load_if_old(self) -> None:
        is_fresh = self._loaded_at is not None and time.monotonic() - self._loaded_at < _FRESH_SECONDS
        if not is_fresh and not self._is_loading:
            self._is_loading = True
            threading.Thread(target=self._load, name="toolcrib-paths", daemon=True).start()

    def _load(self) -> None:
        try:
            tree = self._location.tree
            paths = None if tree is None else _files_below(tree)
            self._listed = PathList(self._files_of_server() if paths is None else paths)
        except ToolcribError:
            # The chat shows that the server does not answer. Without names nothing is completed.
            pass
        finally:
            self._loaded_at, self._is_loading = time.monotonic(), False
        self._notify()

    def _files_of_server(self) -> Iterator[str]:
        arguments = {"pattern": "**", "limit": _MOST_PATHS}
        found = self._location.client.call(self._location.id, "glob", arguments, on_output=lambda _: None)
        return (one["path"].lstrip("/") for one in found["matches"] if one["file_type"] != "folder")


def _files_below(tree: Path) -> list[str] | None:
    """Returns the files of a directory of this machine, without ignored ones; None if they cannot be listed.

    Only names are read, as a shell would complete them: a hundred thousand take less than a second.
    """
    command = ["rg", "--no-config", "--files", "--hidden", "--no-messages", "--null", "--glob=!.git"]
    try:
        found = subprocess.run(command, cwd=tree, capture_output=True, timeout=_MOST_SECONDS, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return None
    names = found.stdout.decode(errors="ignore").split("\0")
    return [name for name in islice(names, _MOST_PATHS) if name]


class PathList:
    """Finds paths by a part of them, or by some of their letters in order."""

    def __init__(self, paths: Iterable[str]) -> None:
        # Of paths that fit equally well, the shortest is shown first.
        self._paths = sorted(paths, key=lambda path: (path.count("/"), len(path), path))
        self._lower = [path.lower() for path in self._paths]

    def closest(self, typed: str, most: int) -> list[str]:
        """Returns the paths that fit best: whose name starts with it, has it, or that have its letters in order."""
        wanted = typed.lower().lstrip("/")
        if not wanted:
            return self._paths[:most]
        found: dict[int, None] = {}
        for fits in _ways(wanted):
            new = (number for number, path in enumerate(self._lower) if number not in found and fits(path))
            found |= dict.fromkeys(islice(new, most - len(found)))
            if len(found) >= most:
                break
        return [self._paths[number] for number in found]


def _ways(wanted: str) -> Sequence[Callable[[str], bool]]:
    """Returns how a path may fit, the best way first."""
    starts_name = f"/{wanted}"
    return (
        lambda path: path.startswith(wanted) or starts_name in path,
        lambda path: wanted in path,
        lambda path: _has_letters(path, wanted),
    )


def _has_letters(path: str, letters: str) -> bool:
    at = -1
    for letter in letters:
        at = path.find(letter, at + 1)
        if at < 0:
            return False
    return True


def mention(path: str) -> str:
    """Returns how a message names a path. After a folder, its content is completed next."""
    if any(sign in path for sign in ' "@'):
        return f'@"{path}" '
    return f"@{path}" if path.endswith("/") else f"@{path} "
