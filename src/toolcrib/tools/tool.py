"""What a tool is. Knows nothing of who calls it or of what is decided about it."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel

from toolcrib.domain.callers import Caller
from toolcrib.domain.effects import Category, Danger, Effects
from toolcrib.domain.errors import BadArguments, ToolcribError
from toolcrib.tools.context import ToolContext


class ToolArguments(BaseModel):
    """Base of every tool's arguments. An unknown field is an error: a model should hear that it misspelt one."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", frozen=True)


class ToolDefinition(BaseModel):
    """A tool as models and clients are told of it."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, alias_generator=to_camel, populate_by_name=True)

    name: str
    description: str
    input_schema: dict[str, Any]


ToolFunction = Callable[[Any, ToolContext], Awaitable[Any]]


@dataclass(frozen=True)
class Tool:
    """A name, what it takes, what a call would touch, and the function.

    ``repeatable``: whether doing a call again after a crash is safe, when nobody knows whether it was done.
    ``looks``: whether the function looks at the tree before it does anything; there it is found out who belongs. Of
    one that does not, or that names no places, the gate asks beforehand.
    ``offered``: whether models are shown it; not so one that this server cannot do, and that says why when called.
    ``replans``: whether it is called anew when others were quicker than its change; if not, that is a conflict.
    ``seconds``: how long the gate lets a call of this caller run; without it the agent's limit or the server's counts.
    ``failure``: how this tool's dialect tells that a call failed or was refused; none where errors are told as errors.
    """

    name: str
    toolset: str
    description: str
    category: Category
    danger: Danger
    arguments: type[BaseModel]
    effects: Callable[[Any], Effects]
    function: ToolFunction
    repeatable: bool = True
    looks: bool = True
    offered: bool | Callable[[], bool] = True
    replans: bool = True
    seconds: Callable[[Any, Caller], float] | None = None
    failure: Callable[[ToolcribError], Any] | None = None

    @property
    def is_offered(self) -> bool:
        return self.offered if isinstance(self.offered, bool) else self.offered()

    def parse(self, arguments: Mapping[str, Any]) -> BaseModel:
        """The arguments, checked; BadArguments says which field is wrong and what was expected."""
        try:
            return self.arguments.model_validate(arguments)
        except ValidationError as error:
            raise BadArguments(_wrong_fields(error, self.arguments)) from None
        except RecursionError:
            # An enum is asked for, and what came instead cannot even be shown.
            raise BadArguments({"args": "Nested more deeply than any argument of this tool."}) from None

    @cached_property
    def input_schema(self) -> dict[str, Any]:
        schema = self.arguments.model_json_schema()
        schema.pop("title", None)
        schema.pop("description", None)
        return schema

    def definition(self) -> ToolDefinition:
        return ToolDefinition(name=self.name, description=self.description, input_schema=self.input_schema)


def _wrong_fields(error: ValidationError, model: type[BaseModel]) -> dict[str, str]:
    fields: dict[str, str] = {}
    for detail in error.errors(include_url=False, include_context=False):
        name = ".".join(str(step) for step in detail["loc"]) or "args"
        match detail["type"]:
            case "missing":
                fields[name] = "This field is required."
            case "extra_forbidden" if len(detail["loc"]) == 1:
                fields[name] = f"Unknown field. This tool takes: {', '.join(model.model_fields)}."
            case _:
                fields[name] = f"{detail['msg']} (got {type(detail['input']).__name__})"
    return fields
