"""Read files: one by lines, several in one call, or one after the other as ``cat`` shows them."""

import re
from typing import Annotated, Any

from pydantic import Field

from toolcrib.core.errors import CallDenied, ToolFailed, error_text
from toolcrib.core.files import FileContent
from toolcrib.core.paths import AbsolutePath, WorkspacePath
from toolcrib.core.tool_calls import Effects
from toolcrib.tools.context import ToolContext
from toolcrib.tools.tool import ToolArguments, built_in
from toolcrib.tools.tool_results import ToolResult
from toolcrib.workspace.text.content import decode_content, is_binary, line_window


class ReadArguments(ToolArguments):
    path: AbsolutePath = Field(description="Full path to the file.")
    offset: int = Field(
        default=0,
        description="First line, 0-based. A negative value counts from the end: -100 reads the last 100 lines.",
    )
    limit: int = Field(default=500, ge=1, description="Maximum number of lines.")


class _ReadLines(ToolResult):
    path: str
    content: Annotated[Any, Field(description="Text, or a JSON value if the file was written as JSON.")]
    total_lines: int | None
    truncated: bool | None
    offset: int | None
    limit: int | None


class ReadResult(_ReadLines):
    hash: Annotated[str, Field(description="Hash of the whole file. Pass it to `edit` as `last_read_hash`.")]
    synced: bool


@built_in("workspace", effects=lambda arguments: Effects(reads=(arguments.path,)))
async def read(arguments: ReadArguments, context: ToolContext) -> ReadResult:
    """Read a file, by default its first 500 lines.

    `hash` is the hash of the whole file. Pass it to `edit` as `last_read_hash`.
    """
    reading = await context.tree.read(arguments.path)
    return {
        **_read_lines(reading, offset=arguments.offset, limit=arguments.limit),
        "hash": reading.sha256.hex(),
        "synced": reading.path_state.synced,
    }


class ReadMultipleFilesArguments(ToolArguments):
    paths: list[AbsolutePath] = Field(min_length=1, max_length=50, description="Files to read.")
    limit: int = Field(default=500, ge=1, description="Maximum number of lines from each file.")


class ReadManyEntry(ToolResult):
    path: str
    success: bool
    content: Any
    hash: str | None
    synced: bool | None
    error: str | None
    total_lines: int | None
    truncated: bool | None


class ReadManyResult(ToolResult):
    files: list[ReadManyEntry]


@built_in("workspace", effects=lambda arguments: Effects(reads_batch=tuple(arguments.paths)))
async def read_multiple_files(arguments: ReadMultipleFilesArguments, context: ToolContext) -> ReadManyResult:
    """Read up to 50 files in one call. Each result has its own `success` and `error`."""
    return {"files": [await _read_entry(path, arguments.limit, context) for path in arguments.paths]}


async def _read_entry(path: WorkspacePath, limit: int, context: ToolContext) -> ReadManyEntry:
    try:
        reading = await context.tree.read(path)
    except (ToolFailed, CallDenied) as error:
        return {
            "path": path.display,
            "success": False,
            "content": None,
            "hash": None,
            "synced": None,
            "total_lines": None,
            "truncated": None,
            "error": error_text(error),
        }
    part = _read_lines(reading, offset=0, limit=limit)
    return {
        "path": path.display,
        "success": True,
        "content": part["content"],
        "hash": reading.sha256.hex(),
        "synced": reading.path_state.synced,
        "error": None,
        "total_lines": part["total_lines"],
        "truncated": part["truncated"],
    }


def _read_lines(reading: FileContent, *, offset: int, limit: int) -> _ReadLines:
    """Return the content from a line on. Only text has lines: a JSON value is returned whole."""
    path, file = reading.path_state.path.display, reading.path_state.file
    value = decode_content(reading.body, file.state.content_kind) if file else decode_content(reading.body)
    if not isinstance(value, str):
        return {"path": path, "content": value, "total_lines": None, "truncated": None, "offset": None, "limit": None}
    part = line_window(value, offset=offset, limit=limit)
    return {
        "path": path,
        "content": part.text,
        "total_lines": part.total_lines,
        "truncated": part.truncated,
        "offset": part.offset,
        "limit": limit,
    }


class CatArguments(ToolArguments):
    paths: list[AbsolutePath] = Field(min_length=1, max_length=20, description="Files to concatenate, in order.")
    show_ends: bool = Field(default=False, description="Show `$` at the end of each line.")
    show_tabs: bool = Field(default=False, description="Show tabs as `^I`.")
    squeeze_blank: bool = Field(default=False, description="Show consecutive empty lines as one.")
    number_lines: bool = Field(default=False, description="Show line numbers, as in the file.")
    show_headers: bool = Field(default=False, description="Put `==> path <==` before each file.")
    offset: int = Field(default=0, description="First line, 0-based. A negative value counts from the end.")
    limit: int | None = Field(default=None, ge=1, description="Maximum number of lines from each file.")


class CatFile(ToolResult):
    path: str
    content: str | None
    line_count: int | None
    synced: bool | None
    offset: int | None
    limit: int | None
    total_lines: int | None
    error: str | None


class CatResult(ToolResult):
    content: str
    files: list[CatFile]


@built_in("workspace", effects=lambda arguments: Effects(reads_batch=tuple(arguments.paths)))
async def cat(arguments: CatArguments, context: ToolContext) -> CatResult:
    """Concatenate up to 20 files.

    `show_ends`, `show_tabs` and `number_lines` make whitespace and line numbers visible. For a single file, use `read`.
    """
    files = [await _shown_file(path, arguments, context) for path in arguments.paths]
    pieces: list[str] = []
    for file in files:
        if arguments.show_headers:
            pieces.append(f"==> {file['path']} <==\n")
        pieces.append(f"{file['error']}\n" if file["content"] is None else file["content"])
        # One file's last line must not run into the next file.
        if pieces[-1] and not pieces[-1].endswith("\n") and file is not files[-1]:
            pieces.append("\n")
    return {"content": "".join(pieces), "files": files}


async def _shown_file(path: WorkspacePath, arguments: CatArguments, context: ToolContext) -> CatFile:
    entry: CatFile = {
        "path": path.display,
        "content": None,
        "line_count": None,
        "synced": None,
        "offset": None,
        "limit": None,
        "total_lines": None,
        "error": None,
    }
    try:
        reading = await context.tree.read(path)
        if is_binary(reading.body):
            raise ToolFailed(f"{path.display} is not text.")
    except (ToolFailed, CallDenied) as error:
        return {**entry, "error": error_text(error)}
    part = line_window(reading.body.decode("utf-8", "replace"), offset=arguments.offset, limit=arguments.limit)
    return {
        **entry,
        "content": _formatted(part.text, part.offset, arguments),
        "line_count": len(_lines(part.text)),
        "synced": reading.path_state.synced,
        "offset": part.offset,
        "limit": arguments.limit,
        "total_lines": part.total_lines,
    }


def _formatted(text: str, offset: int, arguments: CatArguments) -> str:
    pieces: list[str] = []
    was_blank = False
    for number, line in enumerate(_lines(text), start=offset + 1):
        is_blank = line == "\n"
        if arguments.squeeze_blank and is_blank and was_blank:
            continue
        was_blank = is_blank
        if arguments.show_tabs:
            line = line.replace("\t", "^I")
        if arguments.show_ends:
            line = line.removesuffix("\n") + "$" + ("\n" if line.endswith("\n") else "")
        pieces.append(f"{number:6}\t{line}" if arguments.number_lines else line)
    return "".join(pieces)


def _lines(text: str) -> list[str]:
    r"""Split into lines with their ends. Only ``\n`` ends one: a form feed is a character like any other."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)
