"""The definition of a tool, and the ``tool`` decorator. Independent of callers and decisions."""

import asyncio
import inspect
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any, ClassVar, get_type_hints, overload

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.alias_generators import to_camel

from toolcrib.core.callers import Caller
from toolcrib.core.errors import MOST_FIELDS, BadArguments, Misconfigured, ToolcribError
from toolcrib.core.paths import WorkspacePath
from toolcrib.core.tool_calls import Danger, Effects, ToolCategory
from toolcrib.tools.context import ToolContext


class ToolArguments(BaseModel):
    """Base of every tool's arguments. An unknown field is an error, so that a model notices a misspelt one."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", frozen=True)


class ToolDefinition(BaseModel):
    """A tool as models and clients see it."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, alias_generator=to_camel, populate_by_name=True)

    name: str
    description: str
    input_schema: dict[str, Any]


ToolFunction = Callable[[Any, ToolContext], Awaitable[Any]]


@dataclass(frozen=True)
class Tool:
    """A tool: its name, arguments, declared effects and function.

    Attributes:
        effects: Returns what a call would touch, from its arguments.
        idempotent: A call can safely run again after a crash, when it is unknown whether it ran.
        checks_membership: The function accesses the tree first, which checks membership. Otherwise, or if the call
            names
            no paths, the gate checks it beforehand.
        available: Models see the tool. False for one that this server cannot run; a call then explains why.
        replannable: It runs again when the tree changed before its commit. Otherwise that is a conflict.
        drafts: All it does is a change set with paths that its arguments do not name. So the set is planned before an
            approval, and no grant can cover it beforehand.
        timeout: Returns how long a call by this caller may run. Without it, the limit of the agent or the server
            applies.
        encode_error: Encodes a failure or denial in this tool's dialect. Without it, errors stay errors.
    """

    name: str
    toolset: str
    description: str
    category: ToolCategory
    danger: Danger
    arguments: type[BaseModel]
    effects: Callable[[Any], Effects]
    function: ToolFunction
    idempotent: bool = True
    checks_membership: bool = True
    available: bool | Callable[[], bool] = True
    replannable: bool = True
    drafts: bool = False
    timeout: Callable[[Any, Caller], float] | None = None
    encode_error: Callable[[ToolcribError], Any] | None = None

    @property
    def is_available(self) -> bool:
        return self.available if isinstance(self.available, bool) else self.available()

    @property
    def is_quick(self) -> bool:
        """Whether a call waits only for the tree and the database. False for tools of other authors."""
        is_ours = self.function.__module__.startswith("toolcrib.tools.")
        return is_ours and self.timeout is None and self.category in (ToolCategory.FILE, ToolCategory.PLAN)

    def parse(self, arguments: Mapping[str, Any]) -> BaseModel:
        """Validate the arguments. Raises ``BadArguments`` with the wrong fields and what was expected."""
        _reject_many_unknown(arguments, self.arguments)
        try:
            return self.arguments.model_validate(arguments)
        except ValidationError as error:
            raise BadArguments(_wrong_fields(error, self.arguments)) from None
        except RecursionError:
            # An enum was expected, and the value is nested too deeply to be shown.
            raise BadArguments({"args": "Nested too deeply."}) from None

    @cached_property
    def input_schema(self) -> dict[str, Any]:
        """The JSON Schema of the arguments."""
        schema = self.arguments.model_json_schema()
        schema.pop("title", None)
        schema.pop("description", None)
        return schema

    def definition(self) -> ToolDefinition:
        """Return the tool as models and clients see it."""
        return ToolDefinition(name=self.name, description=self.description, input_schema=self.input_schema)


def _reject_many_unknown(arguments: Mapping[str, Any], model: type[BaseModel]) -> None:
    """Raise early for very many unknown fields, and report only a few of them."""
    if len(arguments) <= len(model.model_fields) + MOST_FIELDS or model.model_config.get("extra") != "forbid":
        return
    unknown = islice((name for name in arguments if name not in model.model_fields), MOST_FIELDS)
    fields = dict.fromkeys(unknown, f"Unknown field. Fields of this tool: {', '.join(model.model_fields)}.")
    raise BadArguments(fields | {"…": f"{len(arguments):,} fields were given."})


def _wrong_fields(error: ValidationError, model: type[BaseModel]) -> dict[str, str]:
    fields: dict[str, str] = {}
    for detail in error.errors(include_url=False, include_context=False):
        name = ".".join(str(step) for step in detail["loc"]) or "args"
        match detail["type"]:
            case "missing":
                fields[name] = "This field is required."
            case "extra_forbidden" if len(detail["loc"]) == 1:
                fields[name] = f"Unknown field. Fields of this tool: {', '.join(model.model_fields)}."
            case _:
                fields[name] = f"{detail['msg']} (got {type(detail['input']).__name__})"
    return fields


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...


@overload
def tool(
    *,
    name: str | None = None,
    toolset: str = "custom",
    category: ToolCategory = ToolCategory.FILE,
    danger: Danger = Danger.DANGEROUS,
    effects: Callable[[Any], Effects] | None = None,
    idempotent: bool = False,
) -> Callable[[Callable[..., Any]], Tool]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    toolset: str = "custom",
    category: ToolCategory = ToolCategory.FILE,
    danger: Danger = Danger.DANGEROUS,
    effects: Callable[[Any], Effects] | None = None,
    idempotent: bool = False,
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a tool from a typed function: ``@tool`` alone, or ``@tool(danger=Danger.SAFE)``.

    The schema comes from the signature, the descriptions from the docstring. A parameter annotated ``ToolContext`` is
    filled by Toolcrib; the others are the arguments. Paths use the types of ``toolcrib.core.paths``; unless ``effects``
    is given, a safe tool reads them and a dangerous one writes them. By default a tool is dangerous and not idempotent.
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
            idempotent=idempotent,
            checks_membership=False,
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
                f"The tool {function.__name__!r} has the positional-only parameter {parameter.name!r}. "
                "Arguments are passed by name: remove the `/`."
            )
        if hint is None or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise Misconfigured(
                f"The tool {function.__name__!r} has the parameter {parameter.name!r} without a type. "
                "Annotate every parameter: the tool's schema is built from them."
            )
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[parameter.name] = (hint, Field(default, description=words.get(parameter.name)))
    return context_name, create_model(function.__name__, __base__=ToolArguments, **fields)


def _words(function: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """Return the docstring's text, and the description of each parameter in its ``Args:`` section."""
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
    return Effects(reads=_paths(arguments))


def _writes(arguments: BaseModel) -> Effects:
    return Effects(reads=_paths(arguments), writes=_paths(arguments))


def _paths(arguments: BaseModel) -> tuple[WorkspacePath, ...]:
    values = [getattr(arguments, name) for name in type(arguments).model_fields]
    flat = [item for value in values for item in (value if isinstance(value, list | tuple) else [value])]
    return tuple(item for item in flat if isinstance(item, WorkspacePath))
