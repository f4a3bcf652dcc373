"""Loads tools from installed Python packages and from a configured module. Their functions never run on the event loop.

A package names its tools in the entry point group ``toolcrib.tools``: a tool, a list of tools, or a module with tools.
"""

import asyncio
import importlib
import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType
from typing import Any, Final, cast

from toolcrib.core.errors import Misconfigured
from toolcrib.runtime.tool_threads import in_tool_loop
from toolcrib.tools.context import ToolContext
from toolcrib.tools.tool import Tool, emit_from_thread
from toolcrib.tools.tool_files import ToolFiles

GROUP: Final = "toolcrib.tools"
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")


def load_python_tools(module: str | None) -> tuple[Tool, ...]:
    """Load the tools of all installed packages, and of ``module``.

    Raises:
        Misconfigured: One cannot be loaded; the message names it.
    """
    found: dict[int, Tool] = {}
    for load, source, remedy in _sources(module):
        for tool in _loaded(load, source, remedy):
            # A package may name a tool and its module.
            found.setdefault(id(tool), _prepared(tool, source))
    return tuple(found.values())


def _sources(module: str | None) -> Iterator[tuple[Callable[[], Any], str, str]]:
    for point in sorted(entry_points(group=GROUP), key=lambda one: (_package(one), one.name)):
        yield point.load, f"{_package(point)} ({point.value})", "Fix the package or uninstall it."
    if module is not None:
        load = partial(importlib.import_module, module)
        yield load, f"module {module}", "Fix it or change TOOLCRIB_TOOLS_MODULE."


def _package(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist else point.name


def _loaded(load: Callable[[], Any], source: str, remedy: str) -> Iterator[Tool]:
    try:
        value = load()
    except (Exception, SystemExit) as error:
        # The code of another author may raise anything.
        reason = error.message if isinstance(error, Misconfigured) else f"{type(error).__name__}: {error}"
        raise Misconfigured(f"The Python tools of {source} cannot be loaded: {reason}. {remedy}") from error
    tools = list(_tools_in(value))
    if not tools:
        what = "has no tools" if isinstance(value, ModuleType) else f"is {type(value).__name__}, not a tool"
        raise Misconfigured(f"{source[:1].upper()}{source[1:]} {what}. Make tools with `@toolcrib.tool`. {remedy}")
    for tool in tools:
        if not _NAME.fullmatch(tool.name):
            raise Misconfigured(
                f"The tool {tool.name!r} of {source} has an invalid name. Use letters, digits and `_`. {remedy}"
            )
    yield from tools


def _tools_in(value: Any) -> Iterator[Tool]:
    if isinstance(value, Tool):
        yield value
    elif isinstance(value, ModuleType):
        yield from (one for name, one in vars(value).items() if isinstance(one, Tool) and not name.startswith("_"))
    elif isinstance(value, Iterable) and not isinstance(value, str):
        yield from (one for one in value if isinstance(one, Tool))


def _prepared(tool: Tool, source: str) -> Tool:
    """Return the tool with its source. A plain function runs in a thread anyway; a coroutine gets a loop of its own."""
    tool = replace(tool, source=source)
    if not inspect.iscoroutinefunction(inspect.unwrap(tool.function)):
        return tool
    function = tool.function

    async def call(arguments: Any, context: ToolContext) -> Any:
        there = _OffLoopContext.of(context)
        return await in_tool_loop(lambda: cast(Any, function(arguments, there)), owner=context.caller.workspace_id)

    call.__module__ = function.__module__
    return replace(tool, function=call)


@dataclass(frozen=True)
class _OffLoopContext(ToolContext):
    """The context of a call on another event loop than the server's."""

    loop: asyncio.AbstractEventLoop | None = None

    @classmethod
    def of(cls, context: ToolContext) -> "_OffLoopContext":
        loop = asyncio.get_running_loop()
        same = {field.name: getattr(context, field.name) for field in fields(ToolContext)}
        return cls(**{**same, "emit": emit_from_thread(context)}, loop=loop)

    @cached_property
    def files(self) -> ToolFiles:
        assert self.loop is not None
        return cast(ToolFiles, _OffLoopFiles(ToolFiles(self.tree, self.draft), self.loop))


class _OffLoopFiles:
    """The methods of ``ToolFiles``, each of which runs on the server's event loop."""

    def __init__(self, files: ToolFiles, loop: asyncio.AbstractEventLoop) -> None:
        self._files = files
        self._loop = loop

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._files, name)

        async def call(*arguments: Any, **options: Any) -> Any:
            there = asyncio.run_coroutine_threadsafe(method(*arguments, **options), self._loop)
            return await asyncio.wrap_future(there)

        return call
