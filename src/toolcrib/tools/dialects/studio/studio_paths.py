"""The paths of this toolset: relative to the project, ``@central/…``, or absolute inside @project or @central."""

import re
from dataclasses import dataclass
from typing import Annotated

from pydantic import PlainSerializer, PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from toolcrib.core.errors import BadArguments, PathOutsideMount
from toolcrib.core.paths import Mount, WorkspacePath, parse_absolute, parse_mounted, parse_relative
from toolcrib.tools.context import ToolContext

_MOUNTED = re.compile(rf"\s*@({'|'.join(Mount)})(?:/|\s*\Z)")
_ZONES = (Mount.PROJECT, Mount.CENTRAL)


@dataclass(frozen=True, slots=True)
class HostPath:
    """An absolute path of the machine. It is resolved once the workspace is known."""

    path: str

    def __str__(self) -> str:
        return self.path


def parse(text: str) -> WorkspacePath | HostPath:
    """Parse ``src/a.py``, ``@central/a.md`` or ``/srv/…/src/a.py``."""
    if _MOUNTED.match(text):
        path = parse_mounted(text)
        if path.mount not in _ZONES:
            raise PathOutsideMount(f"{path} is outside the mounts. Use a path in @project or @central.")
        return path
    if not text.lstrip().startswith("/"):
        return parse_relative(text)
    # Only to report its errors like those of any other path.
    parse_absolute(text)
    return HostPath(text.strip())


def paths_of(path: WorkspacePath | HostPath) -> tuple[WorkspacePath, ...]:
    """Return the path if it is known before the call. The guard checks a host path when it is resolved."""
    return () if isinstance(path, HostPath) else (path,)


async def located(path: WorkspacePath | HostPath, context: ToolContext) -> WorkspacePath:
    """Resolve to a workspace path. Raises ``PathOutsideMount`` for a host path outside @project and @central."""
    return await context.tree.resolve_host_path(path.path) if isinstance(path, HostPath) else path


def written(path: WorkspacePath) -> str:
    """Format a path in this dialect."""
    return (path.path[1:] or ".") if path.mount is Mount.PROJECT else str(path)


def _validated(value: object) -> WorkspacePath | HostPath:
    if isinstance(value, WorkspacePath | HostPath):
        return value
    if not isinstance(value, str):
        raise PydanticCustomError("string_type", "Input should be a valid string")
    try:
        return parse(value)
    except BadArguments as error:
        raise PydanticCustomError("path", "{flaw}", {"flaw": error.fields["path"]}) from None


ZonePath = Annotated[
    WorkspacePath | HostPath,
    PlainValidator(_validated),
    PlainSerializer(lambda path: written(path) if isinstance(path, WorkspacePath) else str(path), return_type=str),
    WithJsonSchema(
        {"type": "string", "description": "A path relative to the project, or an absolute path inside a mount."}
    ),
]
