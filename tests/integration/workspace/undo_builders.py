"""A tree as it is on disk, and random work on it by two authors."""

import random
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.integration.conftest import WorkspaceFixture

Snapshot = dict[str, tuple[str, int, bytes]]

NAMES = ("a", "b", "c")
LARGE = 1000


def snapshot(root: Path) -> Snapshot:
    """Return every path below a root with its type, mode and content."""
    found: Snapshot = {}
    for path in sorted(root.rglob("*")):
        status = path.lstat()
        mode = stat.S_IMODE(status.st_mode)
        name = str(path.relative_to(root))
        if path.is_symlink():
            found[name] = ("link", 0, str(path.readlink()).encode())
        elif path.is_dir():
            found[name] = ("folder", mode, b"")
        else:
            found[name] = ("file", mode, path.read_bytes())
    return found


@dataclass
class Work:
    """Random calls through the gate. Every content is unique, so that it identifies its author."""

    workspace: WorkspaceFixture
    random: random.Random
    done: list[tuple[str, str]] = field(default_factory=list)
    count: int = 0

    async def step(self, author: str) -> None:
        """Make one call; a call that is impossible now is skipped."""
        tool, arguments = self._choose(author)
        outcome = await self.workspace.call(tool, **arguments)
        if outcome.succeeded and outcome.change_set_id is not None:
            self.done.append((author, str(outcome.call_id)))

    async def put_large(self, count: int, *, known: bool) -> None:
        """Create files too large for the history, without an author; touch them so that they are tracked, or not."""
        for number in range(count):
            path = self.workspace.project / self._path()[1:]
            if path.exists() or any(above.is_file() for above in path.parents):
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(f"large {number} ".encode().ljust(LARGE + number, b"."))
            if known:
                await self.workspace.result("touch", path=f"/{path.relative_to(self.workspace.project)}")

    def calls(self, author: str | None = None) -> list[str]:
        return [call for by, call in self.done if author in (None, by)]

    def _choose(self, author: str) -> tuple[str, dict[str, Any]]:
        self.count += 1
        content = f"{author} {self.count}\n"
        match self.random.randrange(9):
            case 0 | 1:
                return "write", {"path": self._path(), "content": content, "overwrite": True}
            case 2:
                return "edit", {"path": self._path(), "insert_line": 0, "insert_content": content}
            case 3 | 4:
                return "mv", {"source": self._path(), "destination": self._path()}
            case 5 | 6:
                return "rm", {"path": self._path()}
            case 7:
                return "mkdir", {"path": self._path()}
            case _:
                return "touch", {"path": self._path()}

    def _path(self) -> str:
        return "/" + "/".join(self.random.choices(NAMES, k=self.random.choice((1, 1, 2, 2, 3))))
