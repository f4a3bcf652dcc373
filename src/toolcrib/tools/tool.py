"""The definition of a tool, and the ``tool`` decorator. A tool's metadata says all that the rest must know about it."""

import asyncio
import inspect
import math
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial, wraps
from itertools import islice
from typing import Any, ClassVar, Final, get_type_hints, overload

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.alias_generators import to_camel
from typing_extensions import is_typeddict

from toolcrib.core.callers import Caller, SessionMode
from toolcrib.core.errors import MOST_FIELDS, BadArguments, Misconfigured, ToolcribError
from toolcrib.core.paths import WorkspacePath
from toolcrib.core.tool_calls import Danger, Effects, ToolCategory
from toolcrib.runtime.tool_threads import in_tool_thread
from toolcrib.tools.context import QuestionsAsked, ToolContext


class ToolArguments(BaseModel):
    """Base of every tool's arguments. An unknown field is an error, so that a model notices a misspelt one."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", frozen=True)


class ToolDefinition(BaseModel):
    """A tool as models and clients see it."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, alias_generator=to_camel, populate_by_name=True)

    name: str
    description: str
    input_schema: dict[str, Any]
    source: str = Field(
        default="",
        exclude_if=lambda source: not source,
        description="The Python package or module that the tool comes from. Absent if it is built in.",
    )


# The toolset of tools that a Python program adds, unless it names another one.
OWN_TOOLSET: Final = "custom"

ToolFunction = Callable[[Any, ToolContext], Awaitable[Any]]


# Stands for a value that is derived from the other fields.
_DERIVED: Final[Any] = None


@dataclass(frozen=True)
class Tool:
    """A tool: its name, arguments, declared effects, metadata and function.

    Attributes:
        effects: Returns what a call would touch, from its arguments.
        idempotent: A call can safely run again after a crash, when it is unknown whether it ran.
        checks_membership: The function accesses the tree first, which checks membership. Otherwise, or if the call
            names no paths, the gate checks it beforehand.
        available: Models see the tool. False for one that this server cannot run; a call then explains why.
        replannable: It runs again when the tree changed before its commit. Otherwise that is a conflict.
        drafts: All it does is a change set with paths that its arguments do not name. So the set is planned before an
            approval, and no grant can cover it beforehand.
        declared_read_only: Its author says that it changes nothing, and an owner accepted that (an MCP server's
            `readOnlyHint`). An agent of trust ``review`` needs no approval for it; a guided one does.
        timeout: Returns how long a call by this caller may run. Without it, the limit of the agent or the server
            applies.
        read_only: An agent without permissions may use it. By default a safe tool that runs no command and asks nobody.
        modes: The modes of a session in which a model sees it. By default ``build``, and ``plan`` if it plans, asks a
            person, or is safe and runs no command.
        plan_files_only: In plan mode, it may write plan files and nothing else.
        default: The default agent has it. By default the tools of the toolset ``workspace``.
        exposed_over_mcp: MCP clients with a person's key see it. By default the tools of the toolset ``workspace``.
        in_execution_log: People's calls are in the execution log too. Agents' calls always are.
        result: The type of the result. By default the function's return annotation, if that is a pydantic model or a
            ``TypedDict``.
        encode_result: Encodes what the function returns in this tool's dialect. Without it, a pydantic model becomes
            its JSON value, and anything else is the result as it is.
        encode_error: Encodes a failure or denial in this tool's dialect. Without it, errors stay errors.
        requires: The kind of a service that the function gets with ``context.resource``. If the server has none, or
            its ``is_available()`` is false, models do not see the tool.
        hosts: Returns the hosts that a call contacts, from the required service. They are part of its effects.
        source: The Python package or module that it comes from; empty if it is built in.
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
    declared_read_only: bool = False
    timeout: Callable[[Any, Caller], float] | None = None
    read_only: bool = _DERIVED
    modes: frozenset[SessionMode] = _DERIVED
    plan_files_only: bool = False
    default: bool = _DERIVED
    exposed_over_mcp: bool = _DERIVED
    in_execution_log: bool = False
    result: type | None = None
    encode_result: Callable[[Any], Any] | None = None
    encode_error: Callable[[ToolcribError], Any] | None = None
    requires: type | None = None
    hosts: Callable[[Any], tuple[str, ...]] | None = None
    source: str = ""

    def __post_init__(self) -> None:
        derived = {
            "read_only": self.danger is Danger.SAFE and self.category not in (ToolCategory.EXEC, ToolCategory.HUMAN),
            "modes": frozenset(SessionMode) if self._is_for_planning else frozenset({SessionMode.BUILD}),
            "default": self.toolset == "workspace",
            "exposed_over_mcp": self.toolset == "workspace",
            "result": _result_type(self.function),
        }
        for name, value in derived.items():
            if getattr(self, name) is _DERIVED:
                object.__setattr__(self, name, value)

    @property
    def _is_for_planning(self) -> bool:
        if self.plan_files_only or self.category in (ToolCategory.PLAN, ToolCategory.HUMAN):
            return True
        return self.danger is Danger.SAFE and self.category is not ToolCategory.EXEC

    def bind(self, resources: Mapping[type, Any]) -> "Tool":
        """Return the tool with the availability and the hosts of the service that it requires."""
        if self.requires is None:
            return self
        resource = resources.get(self.requires)
        if resource is None:
            return replace(self, available=False)
        available = getattr(resource, "is_available", self.available)
        if self.hosts is None:
            return replace(self, available=available)
        effects, hosts = self.effects, self.hosts(resource)
        return replace(self, available=available, effects=lambda arguments: replace(effects(arguments), hosts=hosts))

    async def run(self, arguments: Any, context: ToolContext) -> Any:
        """Run the function and return the encoded result.

        Returns ``None`` if it asked a person: ``context.asked`` has the questions.
        """
        try:
            result = await self.function(arguments, context)
        except QuestionsAsked:
            return None
        if self.encode_result is not None:
            return self.encode_result(result)
        if isinstance(result, BaseModel):
            return result.model_dump(mode="json", by_alias=True)
        return result

    @property
    def is_available(self) -> bool:
        return self.available if isinstance(self.available, bool) else self.available()

    @cached_property
    def is_built_in(self) -> bool:
        """Whether it is part of Toolcrib: no tool of an MCP server, a Python package or a program."""
        return self.function.__module__.startswith("toolcrib.tools.")

    @cached_property
    def is_quick(self) -> bool:
        """Whether a call waits only for the tree and the database. False for tools of other authors."""
        is_timed = self.timeout not in (None, no_time_limit)
        return self.is_built_in and not is_timed and self.category in (ToolCategory.FILE, ToolCategory.PLAN)

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
        return ToolDefinition(
            name=self.name, description=self.description, input_schema=self.input_schema, source=self.source
        )


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
    toolset: str = OWN_TOOLSET,
    category: ToolCategory = ToolCategory.FILE,
    danger: Danger = Danger.DANGEROUS,
    effects: Callable[[Any], Effects] | None = None,
    idempotent: bool = False,
    **metadata: Any,
) -> Callable[[Callable[..., Any]], Tool]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    toolset: str = OWN_TOOLSET,
    category: ToolCategory = ToolCategory.FILE,
    danger: Danger = Danger.DANGEROUS,
    effects: Callable[[Any], Effects] | None = None,
    idempotent: bool = False,
    **metadata: Any,
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a tool from a typed function: ``@tool`` alone, or ``@tool(danger=Danger.SAFE)``.

    The schema comes from the signature, the descriptions from the docstring. A parameter annotated ``ToolContext`` is
    filled by Toolcrib; the others are the arguments. Paths use the types of ``toolcrib.core.paths``; unless ``effects``
    is given, a safe tool reads them and a dangerous one writes them. By default a tool is dangerous and not idempotent.
    ``metadata`` are further fields of ``Tool``.
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
            **{"checks_membership": False, **metadata},
        )

    return made if function is None else made(function)


def built_in(
    toolset: str,
    *,
    effects: Callable[[Any], Effects],
    name: str | None = None,
    description: str | None = None,
    category: ToolCategory = ToolCategory.FILE,
    danger: Danger = Danger.SAFE,
    **metadata: Any,
) -> Callable[[ToolFunction], Tool]:
    """Make a tool from a function that takes its ``ToolArguments`` as a whole, and the context.

    Unless given, the description is the docstring as one paragraph. ``metadata`` are further fields of ``Tool``.
    """

    def made(function: ToolFunction) -> Tool:
        [arguments, *_] = get_type_hints(function).values()
        return Tool(
            name=name or function.__name__,
            toolset=toolset,
            description=description or " ".join((function.__doc__ or "").split()),
            category=category,
            danger=danger,
            arguments=arguments,
            effects=effects,
            function=function,
            **metadata,
        )

    return made


def no_time_limit(_: Any, __: Caller) -> float:
    """The ``timeout`` of a tool whose work may take any time, in proportion to what the caller asks for."""
    return math.inf


def no_effects(_: BaseModel) -> Effects:
    """The effects of a tool whose arguments name nothing that it touches."""
    return Effects()


def _result_type(function: Callable[..., Any]) -> type | None:
    """Return the return annotation if it is a pydantic model or a ``TypedDict``."""
    annotation = getattr(function, "__annotations__", {}).get("return")
    if isinstance(annotation, str):
        annotation = get_type_hints(function).get("return")
    is_model = isinstance(annotation, type) and issubclass(annotation, BaseModel)
    return annotation if is_model or is_typeddict(annotation) else None


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
    @wraps(function)
    async def call(arguments: BaseModel, context: ToolContext) -> Any:
        given = {name: getattr(arguments, name) for name in type(arguments).model_fields}
        if inspect.iscoroutinefunction(function):
            return await function(**given, **({context_name: context} if context_name else {}))
        if context_name:
            given[context_name] = replace(context, emit=emit_from_thread(context))
        return await in_tool_thread(partial(function, **given), owner=context.caller.workspace_id)

    return call


def emit_from_thread(context: ToolContext) -> Callable[[str], None]:
    """Return a function for another thread that shows output of the call."""
    loop = asyncio.get_running_loop()

    def emit(text: str) -> None:
        loop.call_soon_threadsafe(context.emit, text)

    return emit


def _reads(arguments: BaseModel) -> Effects:
    return Effects(reads=_paths(arguments))


def _writes(arguments: BaseModel) -> Effects:
    return Effects(reads=_paths(arguments), writes=_paths(arguments))


def _paths(arguments: BaseModel) -> tuple[WorkspacePath, ...]:
    values = [getattr(arguments, name) for name in type(arguments).model_fields]
    flat = [item for value in values for item in (value if isinstance(value, list | tuple) else [value])]
    return tuple(item for item in flat if isinstance(item, WorkspacePath))
