"""Shows files one after the other, with line numbers and hidden characters on request."""

import re
from typing import Any

from pydantic import Field

from toolcrib.core.errors import CallDenied, ToolFailed, error_text
from toolcrib.core.paths import AbsolutePath, WorkspacePath, shown
from toolcrib.core.tool_calls import Danger, Effects, ToolCategory
from toolcrib.tools.context import ToolContext
from toolcrib.tools.tool import Tool, ToolArguments
from toolcrib.workspace.text.content import is_binary, line_window


class CatArguments(ToolArguments):
    paths: list[AbsolutePath] = Field(min_length=1, max_length=20, description="Files to concatenate, in order.")
    show_ends: bool = Field(default=False, description="Show `$` at the end of each line.")
    show_tabs: bool = Field(default=False, description="Show tabs as `^I`.")
    squeeze_blank: bool = Field(default=False, description="Show consecutive empty lines as one.")
    number_lines: bool = Field(default=False, description="Show line numbers, as in the file.")
    show_headers: bool = Field(default=False, description="Put `==> path <==` before each file.")
    offset: int = Field(default=0, description="First line, 0-based. A negative value counts from the end.")
    limit: int | None = Field(default=None, ge=1, description="Maximum number of lines from each file.")


async def cat(arguments: CatArguments, context: ToolContext) -> dict[str, Any]:
    files = [await _shown(path, arguments, context) for path in arguments.paths]
    pieces: list[str] = []
    for file in files:
        if arguments.show_headers:
            pieces.append(f"==> {file['path']} <==\n")
        pieces.append(file["content"] if file["error"] is None else f"{file['error']}\n")
        # One file's last line must not run into the next file.
        if pieces[-1] and not pieces[-1].endswith("\n") and file is not files[-1]:
            pieces.append("\n")
    return {"content": "".join(pieces), "files": files}


async def _shown(path: WorkspacePath, arguments: CatArguments, context: ToolContext) -> dict[str, Any]:
    try:
        reading = await context.tree.read(path)
        if is_binary(reading.body):
            raise ToolFailed(f"{shown(path)} is not text.")
    except (ToolFailed, CallDenied) as error:
        return _entry(path, error=error_text(error))
    part = line_window(reading.body.decode("utf-8", "replace"), offset=arguments.offset, limit=arguments.limit)
    return _entry(
        path,
        content=_formatted(part.text, part.offset, arguments),
        line_count=len(_lines(part.text)),
        synced=reading.path_state.synced,
        offset=part.offset,
        total_lines=part.total_lines,
        limit=arguments.limit,
    )


def _entry(path: WorkspacePath, **given: Any) -> dict[str, Any]:
    empty = dict.fromkeys(("content", "line_count", "synced", "offset", "limit", "total_lines", "error"))
    return {"path": shown(path), **empty, **given}


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


tool = Tool(
    name="cat",
    toolset="workspace",
    description=(
        "Concatenate up to 20 files. `show_ends`, `show_tabs` and `number_lines` make whitespace and line "
        "numbers visible. For a single file, use `read`."
    ),
    category=ToolCategory.FILE,
    danger=Danger.SAFE,
    arguments=CatArguments,
    effects=lambda arguments: Effects(reads_batch=tuple(arguments.paths)),
    function=cat,
)
