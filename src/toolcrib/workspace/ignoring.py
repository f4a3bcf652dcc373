"""Which places ignore rules keep out of the history: by the .gitignore files of every folder above.

As git reads them: the rule nearest to a place decides, the last one of a file, and nothing below an ignored folder can
be taken out of it again. Git's own folder is no matter of theirs. The rules may be an attacker's: one that could take
long to judge does not count, and all of them together get a few seconds.
"""

import re
import time
from collections.abc import Callable
from typing import Final

from pathspec import GitIgnoreSpec
from pathspec.patterns.gitignore import GitIgnorePatternError

from toolcrib.domain.errors import ToolFailed
from toolcrib.domain.places import Mount, Place, root_of

RULES: Final = ".gitignore"
_GIT: Final = ".git"
_ZONES: Final = (Mount.PROJECT, Mount.CENTRAL)
_SECONDS: Final = 10.0
# Every star multiplies the ways in which a long name can fail to match.
_COSTLY: Final = re.compile(r"(?:\*[^/*]+){3}\*|(?:\*\*.*){3}")


class Ignoring:
    """``read`` gives the rules that stand at a place, if any do."""

    def __init__(self, read: Callable[[Place], bytes | None]) -> None:
        self._read = read
        self._rules: dict[Place, GitIgnoreSpec | None] = {}
        self._folders: dict[Place, bool] = {}
        self._seconds = 0.0

    def ignores(self, place: Place, *, folder: bool) -> bool:
        """Whether the history shall not keep what stands at a place."""
        if place.is_root or place.mount not in _ZONES or _GIT in place.parts:
            return False
        if folder:
            return self._ignores_folder(place)
        return self._ignores_folder(place.parent) or self._judged(place, "")

    def _ignores_folder(self, place: Place) -> bool:
        if place.is_root:
            return False
        known = self._folders.get(place)
        if known is None:
            known = self._folders[place] = self._ignores_folder(place.parent) or self._judged(place, "/")
        return known

    def _judged(self, place: Place, end: str) -> bool:
        """By the rules of the folders above, the nearest first."""
        for folder in (*reversed(place.ancestors), root_of(place.mount, place.scope)):
            rules = self._rules_of(folder)
            if rules is None:
                continue
            inside = place.path[1:] if folder.is_root else place.path[len(folder.path) + 1 :]
            verdict = self._timed(rules, inside + end)
            if verdict is not None:
                return verdict
        return False

    def _timed(self, rules: GitIgnoreSpec, path: str) -> bool | None:
        began = time.perf_counter()
        verdict = rules.check_file(path).include
        self._seconds += time.perf_counter() - began
        if self._seconds > _SECONDS:
            raise ToolFailed(
                f"The {RULES} files take more than {_SECONDS:.0f} s to judge what was changed. Nothing was changed. "
                "Write fewer or simpler rules."
            )
        return verdict

    def _rules_of(self, folder: Place) -> GitIgnoreSpec | None:
        if folder not in self._rules:
            self._rules[folder] = _parsed(self._read(folder.child(RULES)))
        return self._rules[folder]


def _parsed(body: bytes | None) -> GitIgnoreSpec | None:
    if not body:
        return None
    good = []
    for line in body.decode(errors="replace").splitlines():
        if _COSTLY.search(line):
            continue
        try:
            GitIgnoreSpec.from_lines([line])
        except GitIgnorePatternError:
            continue  # as git does
        good.append(line)
    return GitIgnoreSpec.from_lines(good)
