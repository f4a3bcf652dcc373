"""Where something is: a mount and a path inside it. Knows no disk and no path language."""

from dataclasses import dataclass
from enum import StrEnum


class Mount(StrEnum):
    """The four trees of a workspace."""

    PROJECT = "project"
    CENTRAL = "central"
    PKG = "pkg"
    STATE = "state"

    @property
    def writable(self) -> bool:
        return self is not Mount.PKG


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A normalised path in a mount: it starts with ``/`` and ends with it only if it is the root.

    ``scope`` tells the @state trees of one workspace apart: one for each run, and one for each caller outside runs.
    """

    mount: Mount
    path: str
    scope: str = ""

    @property
    def tree(self) -> str:
        """Which of the workspace's trees this is in, as it is stored."""
        return f"{self.mount}/{self.scope}" if self.scope else str(self.mount)

    @property
    def is_root(self) -> bool:
        return self.path == "/"

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def parts(self) -> tuple[str, ...]:
        return () if self.is_root else tuple(self.path[1:].split("/"))

    @property
    def parent(self) -> "Place":
        return Place(self.mount, self.path.rpartition("/")[0] or "/", self.scope)

    @property
    def ancestors(self) -> tuple["Place", ...]:
        """The folders above, the topmost first, without the root."""
        parts = self.parts[:-1]
        return tuple(Place(self.mount, "/" + "/".join(parts[: n + 1]), self.scope) for n in range(len(parts)))

    def child(self, name: str) -> "Place":
        return Place(self.mount, f"/{name}" if self.is_root else f"{self.path}/{name}", self.scope)

    def is_below(self, folder: "Place") -> bool:
        """Whether this stands inside ``folder``, at any depth."""
        if self.tree != folder.tree or self.path == folder.path:
            return False
        return folder.is_root or self.path.startswith(folder.path + "/")

    def moved(self, source: "Place", destination: "Place") -> "Place":
        """This place after its ancestor (or itself) ``source`` has become ``destination``."""
        return Place(destination.mount, destination.path + self.path[len(source.path) :], destination.scope)

    def __str__(self) -> str:
        return f"@{self.mount}{'' if self.is_root else self.path}"


def place_in(tree: str, path: str) -> Place:
    """The place that was stored as ``tree`` and ``path``."""
    mount, _, scope = tree.partition("/")
    return Place(Mount(mount), path, scope)


def root_of(mount: Mount, scope: str = "") -> Place:
    return Place(mount, "/", scope)
