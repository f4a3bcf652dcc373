"""A tool from one typed function: its schema comes from the signature, its words from the docstring."""

import asyncio
import inspect
import re
from collections.abc import Callable
from typing import Any, get_type_hints, overload

from pydantic import BaseModel, Field, create_model

from toolcrib.domain.effects import Category, Danger, Effects
from toolcrib.domain.errors import Misconfigured
from toolcrib.domain.places import Place
from toolcrib.tools.context import ToolContext
from toolcrib.tools.tool import Tool, ToolArguments, ToolFunction


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...


@overload
def tool(
    *,
    name: str | None = None,
    toolset: str = "custom",
    category: Category = Category.FILE,
    danger: Danger = Danger.DANGEROUS,
    effects: Callable[[Any], Effects] | None = None,
    repeatable: bool = False,
) -> Callable[[Callable[..., Any]], Tool]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    toolset: str = "custom",
    category: Category = Category.FILE,
    danger: Danger = Danger.DANGEROUS,
    effects: Callable[[Any], Effects] | None = None,
    repeatable: bool = False,
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Makes a tool of a function: ``@tool`` alone, or ``@tool(danger=Danger.SAFE)``.

    A parameter annotated ``ToolContext`` is filled by Toolcrib; the others are the arguments. Paths are declared
    with the types of ``toolcrib.workspace.paths``; unless ``effects`` says otherwise, a safe tool reads them and a
    dangerous one writes them. A new tool counts as dangerous and not repeatable until its author says otherwise.
    """

    def made(function: Callable[..., Any]) -> Tool:
        description, parameter_words = _words(function)
        context_name, model = _arguments(function, parameter_words)
        return Tool(
            name=name or function.__name__,
            toolset=toolset,
            description=description,
            category=category,
            danger=danger,
            arguments=model,
            effects=effects or (_reads if danger is Danger.SAFE else _writes),
            function=_called(function, context_name),
            repeatable=repeatable,
            looks=False,
        )

    return made if function is None else made(function)


def _arguments(function: Callable[..., Any], words: dict[str, str]) -> tuple[str | None, type[BaseModel]]:
    hints = get_type_hints(function, include_extras=True)
    context_name = None
    fields: dict[str, Any] = {}
    for parameter in inspect.signature(function).parameters.values():
        hint = hints.get(parameter.name)
        if hint is ToolContext:
            context_name = parameter.name
            continue
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise Misconfigured(
                f"The tool {function.__name__!r} takes the parameter {parameter.name!r} by position only. "
                "Arguments come by name: remove the `/`."
            )
        if hint is None or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise Misconfigured(
                f"The tool {function.__name__!r} has the parameter {parameter.name!r} without a type. "
                "Annotate every parameter: the tool's schema is made from them."
            )
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[parameter.name] = (hint, Field(default, description=words.get(parameter.name)))
    return context_name, create_model(function.__name__, __base__=ToolArguments, **fields)


def _words(function: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """The docstring's text, and what its ``Args:`` section says of each parameter."""
    text = inspect.getdoc(function)
    if not text:
        raise Misconfigured(f"The tool {function.__name__!r} has no docstring. A model reads it to know what it does.")
    description, _, arguments = text.partition("\nArgs:\n")
    section = re.split(r"\n(?=\S)", arguments, maxsplit=1)[0]
    found = re.findall(r"^\s+(\w+)(?: \([^)]*\))?:\s*(.+(?:\n\s{6,}.+)*)", section, re.MULTILINE)
    return description.strip(), {name: " ".join(words.split()) for name, words in found}


def _called(function: Callable[..., Any], context_name: str | None) -> ToolFunction:
    async def call(arguments: BaseModel, context: ToolContext) -> Any:
        given = {name: getattr(arguments, name) for name in type(arguments).model_fields}
        if context_name:
            given[context_name] = context
        if inspect.iscoroutinefunction(function):
            return await function(**given)
        return await asyncio.to_thread(function, **given)

    return call


def _reads(arguments: BaseModel) -> Effects:
    return Effects(reads=_places(arguments))


def _writes(arguments: BaseModel) -> Effects:
    return Effects(reads=_places(arguments), writes=_places(arguments))


def _places(arguments: BaseModel) -> tuple[Place, ...]:
    values = [getattr(arguments, name) for name in type(arguments).model_fields]
    flat = [item for value in values for item in (value if isinstance(value, list | tuple) else [value])]
    return tuple(item for item in flat if isinstance(item, Place))
