"""Checks answers against the JSON Schema that asked for them. Fetches nothing and cannot be made to take long."""

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import jsonschema_rs

# A form that a person fills in needs no more.
MAX_SCHEMA_CHARACTERS = 20_000


def schema_flaw(schema: Mapping[str, Any]) -> str | None:
    """Why this is no schema that answers can be checked against, if it is none."""
    text = json.dumps(schema)
    if len(text) > MAX_SCHEMA_CHARACTERS:
        return f"The schema has {len(text):,} characters; at most {MAX_SCHEMA_CHARACTERS:,} are taken."
    try:
        _validator(text)
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
        return f"Not a JSON Schema: {str(error).splitlines()[0]}"
    return None


def flaw_in(schema: Mapping[str, Any], answer: Any) -> str | None:
    """What is wrong with an answer, or none."""
    error = next(iter(_validator(json.dumps(schema)).iter_errors(answer)), None)
    return None if error is None else error.message


@lru_cache(maxsize=256)
def _validator(text: str) -> Any:
    return jsonschema_rs.validator_for(
        json.loads(text),
        retriever=_fetch_nothing,
        # The linear engine: a pattern that explodes would hold the whole server.
        pattern_options=jsonschema_rs.RegexOptions(size_limit=1_000_000, dfa_size_limit=1_000_000),
    )


def _fetch_nothing(uri: str) -> Any:
    raise ValueError(f"A schema may not refer to other documents ({uri}).")
