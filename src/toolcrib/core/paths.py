"""Workspace paths: a mount and a path inside it, and the three notations that are parsed into one.

Pure: no disk access.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from operator import attrgetter
from typing import Annotated

from pydantic import PlainSerializer, PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from toolcrib.core.errors import BadArguments, PathOutsideMount


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
class WorkspacePath:
    """A normalized path in a mount: it starts with ``/``, and only the root ends with it.

    ``scope`` separates the @state trees of one workspace: one per session, and one per caller outside sessions.
    """

    mount: Mount
    path: str
    scope: str = ""

    @property
    def mount_key(self) -> str:
        """The tree that the path is in, as stored."""
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
    def parent(self) -> "WorkspacePath":
        return WorkspacePath(self.mount, self.path.rpartition("/")[0] or "/", self.scope)

    @property
    def ancestors(self) -> tuple["WorkspacePath", ...]:
        """The folders above, topmost first, without the root."""
        parts = self.parts[:-1]
        return tuple(WorkspacePath(self.mount, "/" + "/".join(parts[: n + 1]), self.scope) for n in range(len(parts)))

    def child(self, name: str) -> "WorkspacePath":
        return WorkspacePath(self.mount, f"/{name}" if self.is_root else f"{self.path}/{name}", self.scope)

    def is_below(self, folder: "WorkspacePath") -> bool:
        """Whether this is inside ``folder``, at any depth."""
        if self.mount_key != folder.mount_key or self.path == folder.path:
            return False
        return folder.is_root or self.path.startswith(folder.path + "/")

    def relocate(self, source: "WorkspacePath", destination: "WorkspacePath") -> "WorkspacePath":
        """Return this path after its ancestor (or itself) ``source`` has moved to ``destination``."""
        return WorkspacePath(destination.mount, destination.path + self.path[len(source.path) :], destination.scope)

    @property
    def display(self) -> str:
        """The path for people and models: ``/x`` in the project, ``@mount/x`` elsewhere."""
        return self.path if self.mount is Mount.PROJECT else str(self)

    @property
    def relative(self) -> str:
        """The path for text: relative to the project, or with its mount."""
        return (self.path[1:] or ".") if self.mount is Mount.PROJECT else str(self)

    def __str__(self) -> str:
        return f"@{self.mount}{'' if self.is_root else self.path}"


def path_from_row(tree: str, path: str) -> WorkspacePath:
    """Build the path stored as ``tree`` and ``path``."""
    mount, _, scope = tree.partition("/")
    return WorkspacePath(Mount(mount), path, scope)


# As paths compare. With ten thousand of them, comparing the objects themselves takes a tenth of a second.
_ORDER = attrgetter("mount", "path", "scope")


def in_order(paths: Iterable[WorkspacePath]) -> list[WorkspacePath]:
    """Return paths sorted, each once."""
    return sorted(set(paths), key=_ORDER)


def folders_above(paths: Iterable[WorkspacePath]) -> frozenset[WorkspacePath]:
    """Return every folder above these paths, without the roots. Files of one folder share the work."""
    found: set[WorkspacePath] = set()
    for path in paths:
        folder = path.parent
        while not folder.is_root and folder not in found:
            found.add(folder)
            folder = folder.parent
    return frozenset(found)


def mount_root(mount: Mount, scope: str = "") -> WorkspacePath:
    return WorkspacePath(mount, "/", scope)


# Limits for a parsed path.
_MOST_PARTS = 64
_MOST_BYTES_A_NAME = 255
_MOST_BYTES = 4095

# Fast path: nearly every path is already normalized, and one match proves it. Others take the slow path.
_CLEAN = r"(?:/(?!\.\.?(?:/|\Z))[!-.0-9;-\[\]-~][ -.0-9;-\[\]-~]{0,254}){1,64}(?<! )"
_CLEAN_ABSOLUTE = re.compile(_CLEAN)
_CLEAN_MOUNTED = re.compile(f"@({'|'.join(Mount)})({_CLEAN})?")

_MOUNTS = frozenset(str(mount) for mount in Mount)
_MOUNTED = re.compile(r"@([^/]*)(.*)", re.DOTALL)
_DRIVE = re.compile(r"/*[A-Za-z]:(?:/|\Z)")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def parse_absolute(text: str) -> WorkspacePath:
    """Parse ``/src/a.py``, with or without the leading slash. Resolves ``.`` and ``..``."""
    if len(text) <= _MOST_BYTES and _CLEAN_ABSOLUTE.fullmatch(text):
        return WorkspacePath(Mount.PROJECT, text)
    return WorkspacePath(Mount.PROJECT, _resolved(_trimmed(text)))


def parse_relative(text: str) -> WorkspacePath:
    """Parse ``src/a.py``, relative to the root of the project. An absolute path is outside."""
    rooted = f"/{text}"
    if len(rooted) <= _MOST_BYTES and _CLEAN_ABSOLUTE.fullmatch(rooted):
        return WorkspacePath(Mount.PROJECT, rooted)
    trimmed = _trimmed(text)
    if trimmed.startswith("/"):
        raise _outside(text, "it is absolute", "Write it relative to the project, such as src/main.py.")
    return WorkspacePath(Mount.PROJECT, _resolved(trimmed))


def parse_mounted(text: str) -> WorkspacePath:
    """Parse ``@project/src/a.py``; ``@project`` alone is its root. Any ``..`` is outside, wherever it leads."""
    if len(text) <= _MOST_BYTES and (clean := _CLEAN_MOUNTED.fullmatch(text)):
        return WorkspacePath(Mount(clean[1]), clean[2] or "/")
    mounted = _MOUNTED.fullmatch(_trimmed(text).removeprefix("./"))
    if mounted is None or mounted[1] not in _MOUNTS:
        mounts = ", ".join(f"@{mount}" for mount in Mount)
        raise _outside(text, "it has no mount", f"Begin it with one of {mounts}.")
    if ".." in mounted[2].split("/"):
        raise _outside(text, "it contains '..'", "Write the path without it.")
    if _DRIVE.match(mounted[2]):
        raise _names_a_drive(text)
    return WorkspacePath(Mount(mounted[1]), _resolved(mounted[2]))


# How programs may write a path.
PathLike = str | WorkspacePath


def parse_path(path: PathLike) -> WorkspacePath:
    """Parse ``/src/a.py`` or ``@central/plan.md``, as ``display`` writes them."""
    if isinstance(path, WorkspacePath):
        return path
    return parse_mounted(path) if path.startswith("@") else parse_absolute(path)


def is_valid_name(name: str) -> bool:
    """Whether a name found on disk can be written as a path, and so be shown and requested."""
    return name == name.strip() and "\\" not in name and _flaw([name]) is None


def is_valid_path(path: str) -> bool:
    """Whether a whole path such as ``/a/b`` can be written."""
    parts = path[1:].split("/")
    return _flaw(parts) is None and all(map(is_valid_name, parts))


def _trimmed(text: str) -> str:
    """Strip whitespace, and reject a path of another file system."""
    if "\0" in text:
        raise _outside(text, "it contains a NUL byte", "Remove it.")
    trimmed = text.strip()
    if not trimmed:
        raise BadArguments({"path": "The path is empty. Give a file or directory."})
    if "\\" in trimmed:
        raise _outside(text, "it contains a backslash", "Separate directories with '/'.")
    if _DRIVE.match(trimmed):
        raise _names_a_drive(text)
    return trimmed


def _resolved(trimmed: str) -> str:
    """Resolve to ``/a/b``. A path above the root is rejected, not clamped: it was meant to leave."""
    parts: list[str] = []
    for part in trimmed.split("/"):
        if part in ("", "."):
            continue
        if part != "..":
            parts.append(part)
            continue
        if not parts:
            raise _outside(trimmed, "it goes above the root", "Use fewer '..'.")
        parts.pop()
    if flaw := _flaw(parts):
        raise BadArguments({"path": flaw})
    return "/" + "/".join(parts)


def _flaw(parts: list[str]) -> str | None:
    """Return why these cannot be file names, or ``None``."""
    if len(parts) > _MOST_PARTS:
        return f"The path is {len(parts)} directories deep; at most {_MOST_PARTS} are allowed. Use a shorter path."
    size = 0
    for part in parts:
        try:
            name_size = len(part.encode())
        except UnicodeEncodeError:
            return f"{_quoted(part)} is not valid Unicode (a lone surrogate). Use a valid name."
        if name_size > _MOST_BYTES_A_NAME:
            return f"{_quoted(part)} has {name_size} bytes; a name has at most {_MOST_BYTES_A_NAME}."
        if _CONTROL.search(part):
            return f"{_quoted(part)} contains a control character. Use a name without it."
        size += name_size + 1
    if size > _MOST_BYTES:
        return f"The path has {size} bytes; at most {_MOST_BYTES} are allowed. Use a shorter path."
    return None


def _outside(text: str, reason: str, remedy: str) -> PathOutsideMount:
    return PathOutsideMount(f"{_quoted(text)} is outside the workspace: {reason}. {remedy}")


def _names_a_drive(text: str) -> PathOutsideMount:
    return _outside(text, "it contains a drive letter", "Begin at the root of the workspace.")


def _quoted(text: str) -> str:
    """Quote text for a message: on one line, without control characters, shortened."""
    return repr(text) if len(text) <= 80 else f"{text[:80]!r}…"


def _argument(parse: Callable[[str], WorkspacePath]) -> PlainValidator:
    """Wrap ``parse`` for pydantic: an invalid name becomes a field error, a sandbox violation passes through."""

    def validate(value: object) -> WorkspacePath:
        if isinstance(value, WorkspacePath):
            return value
        if not isinstance(value, str):
            raise PydanticCustomError("string_type", "Input should be a valid string")
        try:
            return parse(value)
        except BadArguments as error:
            raise PydanticCustomError("path", "{flaw}", {"flaw": error.fields["path"]}) from None

    return PlainValidator(validate)


def _schema(description: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "description": description})


AbsolutePath = Annotated[
    WorkspacePath,
    _argument(parse_absolute),
    PlainSerializer(attrgetter("display"), return_type=str),
    _schema("A path from the root of the workspace, such as /src/main.py."),
]
MountPath = Annotated[
    WorkspacePath,
    _argument(parse_mounted),
    PlainSerializer(str, return_type=str),
    _schema("A mount and a path inside it, such as @project/src/main.py."),
]
RelativePath = Annotated[
    WorkspacePath,
    _argument(parse_relative),
    PlainSerializer(lambda path: path.path[1:] or ".", return_type=str),
    _schema("A path relative to the project, such as src/main.py."),
]
