"""Argument types that name a plan, by path or by name."""

from typing import Annotated

from pydantic import AfterValidator, PlainSerializer, PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from toolcrib.core.errors import BadArguments
from toolcrib.core.paths import AbsolutePath, WorkspacePath, parse_absolute
from toolcrib.workspace.text.plans import FOLDER, name_of, path_of, require_plan_name


def _plan_path(path: WorkspacePath) -> WorkspacePath:
    try:
        return require_plan_name(path)
    except BadArguments as error:
        raise PydanticCustomError("plan_path", "{flaw}", {"flaw": error.fields["path"]}) from None


def _named(name: object) -> WorkspacePath:
    if isinstance(name, WorkspacePath):
        return name
    if not isinstance(name, str):
        raise PydanticCustomError("string_type", "Input should be a valid string")
    if "/" in name or name.strip() in ("", ".", ".."):
        raise PydanticCustomError("plan_name", "A plan name is a file name in /plans; use `path` for other files")
    try:
        path = parse_absolute(path_of(name.strip()).path)
    except BadArguments as error:
        raise PydanticCustomError("plan_name", "{flaw}", {"flaw": error.fields["path"]}) from None
    assert path.parent == FOLDER
    return path


PlanPath = Annotated[AbsolutePath, AfterValidator(_plan_path)]
PlanName = Annotated[
    WorkspacePath,
    PlainValidator(_named),
    PlainSerializer(name_of, return_type=str),
    WithJsonSchema({"type": "string", "description": "The name of a plan, such as gleeful-tangerine-expedition."}),
]
