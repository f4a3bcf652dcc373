"""Arguments whose shape a foreign JSON Schema says. Checked by the linear engine, with no reference followed abroad."""

import json
from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import AfterValidator, RootModel
from pydantic_core import PydanticCustomError

from toolcrib.policy.answers import flaw_in

MOST_CHARACTERS: Final = 1_000_000


def arguments_by(schema: Mapping[str, Any]) -> type[RootModel[dict[str, Any]]]:
    """A model of arguments that takes what fits ``schema``, and shows it as its own."""

    def fitting(given: dict[str, Any]) -> dict[str, Any]:
        if flaw := _size_flaw(given) or flaw_in(schema, given):
            raise PydanticCustomError("schema", "{flaw}", {"flaw": flaw})
        return given

    class Arguments(RootModel[Annotated[dict[str, Any], AfterValidator(fitting)]]):
        @classmethod
        def model_json_schema(cls, *_: Any, **__: Any) -> dict[str, Any]:
            return dict(schema)

    return Arguments


def _size_flaw(given: dict[str, Any]) -> str | None:
    try:
        size = len(json.dumps(given, allow_nan=False))
    except (ValueError, RecursionError):
        return "These arguments cannot be written as JSON."
    return (
        f"{size:,} characters are too many; at most {MOST_CHARACTERS:,} are sent." if size > MOST_CHARACTERS else None
    )
