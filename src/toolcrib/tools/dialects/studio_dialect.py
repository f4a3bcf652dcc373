"""The files of the ``studio`` toolset: in @project and @central, results as text with metadata.

Paths are relative to the project, ``@central/…``, or absolute inside @project or @central.
"""

import re
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, PlainSerializer, PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from toolcrib.core.errors import BadArguments, NotFound, PathOutsideMount, TooLarge
from toolcrib.core.paths import Mount, WorkspacePath, parse_absolute, parse_mounted, parse_relative
from toolcrib.core.tool_calls import Danger, Effects
from toolcrib.tools.context import ToolContext
from toolcrib.tools.files.write import write_file
from toolcrib.tools.tool import ToolArguments, built_in
from toolcrib.tools.tool_results import TextOutput, failed_output, text_output
from toolcrib.workspace.text.content import HeadTailReader, encode_content

_MOST_BYTES = 1_000_000
_MOUNTED = re.compile(rf"\s*@({'|'.join(Mount)})(?:/|\s*\Z)")
_ZONES = (Mount.PROJECT, Mount.CENTRAL)


@dataclass(frozen=True, slots=True)
class HostPath:
    """An absolute path of the machine. It is resolved once the workspace is known."""

    path: str

    def __str__(self) -> str:
        return self.path


def parse_zone_path(text: str) -> WorkspacePath | HostPath:
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


def _validated(value: object) -> WorkspacePath | HostPath:
    if isinstance(value, WorkspacePath | HostPath):
        return value
    if not isinstance(value, str):
        raise PydanticCustomError("string_type", "Input should be a valid string")
    try:
        return parse_zone_path(value)
    except BadArguments as error:
        raise PydanticCustomError("path", "{flaw}", {"flaw": error.fields["path"]}) from None


ZonePath = Annotated[
    WorkspacePath | HostPath,
    PlainValidator(_validated),
    PlainSerializer(lambda path: path.relative if isinstance(path, WorkspacePath) else str(path), return_type=str),
    WithJsonSchema(
        {"type": "string", "description": "A path relative to the project, or an absolute path inside a mount."}
    ),
]


def paths_of(path: WorkspacePath | HostPath) -> tuple[WorkspacePath, ...]:
    """Return the path if it is known before the call. The guard checks a host path when it is resolved."""
    return () if isinstance(path, HostPath) else (path,)


async def _resolved(path: WorkspacePath | HostPath, context: ToolContext) -> WorkspacePath:
    """Resolve to a workspace path. Raises ``PathOutsideMount`` for a host path outside @project and @central."""
    return await context.tree.resolve_host_path(path.path) if isinstance(path, HostPath) else path


class FileReadArguments(ToolArguments):
    path: ZonePath = Field(description="Absolute or relative path to read.")


@built_in(
    "studio",
    description=f"Read a file. Files larger than {_MOST_BYTES:,} bytes are truncated.",
    effects=lambda arguments: Effects(reads=paths_of(arguments.path)),
    encode_error=failed_output,
)
async def file_read(arguments: FileReadArguments, context: ToolContext) -> TextOutput:
    path = await _resolved(arguments.path, context)
    name, reader = path.relative, HeadTailReader(limit=_MOST_BYTES)
    try:
        await context.tree.stream(path, reader.feed)
    except NotFound:
        raise NotFound(f"file not found: {name}") from None
    note = f"\n[truncated: the first {_MOST_BYTES:,} of {reader.size:,} bytes]" if reader.cut else ""
    return text_output(reader.text + note, path=name, bytes=reader.size, sha256=reader.sha256, truncated=reader.cut)


class FileWriteArguments(ToolArguments):
    path: ZonePath = Field(description="Absolute or relative path to write.")
    content: str = Field(description="The full content.")


@built_in(
    "studio",
    danger=Danger.DANGEROUS,
    effects=lambda arguments: Effects(writes=paths_of(arguments.path)),
    encode_error=failed_output,
)
async def file_write(arguments: FileWriteArguments, context: ToolContext) -> TextOutput:
    """Create a file or replace its whole content. Missing directories are created."""
    path = await _resolved(arguments.path, context)
    path_state = await context.draft.lookup(path)
    await context.tree.reject_symlink(path_state)
    body, kind = encode_content(arguments.content)
    if len(body) > context.tree.max_file_bytes:
        raise TooLarge(f"The content has {len(body):,} bytes; the limit is {context.tree.max_file_bytes:,}.")
    changed = await write_file(path_state, body, context, content=kind)
    return text_output(
        f"wrote {len(body)} bytes to {path.relative}",
        path=path.relative,
        bytes=len(body),
        sha256=changed["hash"],
        file_id=changed["file_id"],
        version_id=changed["version_id"],
    )
