"""Validates answers against their JSON Schema. Fetches nothing, and estimates the cost beforehand."""

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import jsonschema_rs

from toolcrib.core.tool_calls import UNSTORABLE_TEXT, is_storable_text

# A form for a person needs no more.
MAX_SCHEMA_CHARACTERS = 20_000
MAX_ANSWER_CHARACTERS = 100_000
_DEEPEST = 40
_LITTLE_SCHEMA = 4_000
# This many schemas times characters are checked in less than a tenth of a second.
_LITTLE_WORK = 2_000_000
# How many schemas an answer may be checked against, after following all references.
_MOST_SCHEMAS = 2_000
_LONGEST_FLAW = 500


def schema_error(schema: Mapping[str, Any]) -> str | None:
    """Return why a schema cannot be used to check answers, or ``None``."""
    if _is_deep(schema):
        return f"The schema is nested more than {_DEEPEST} levels deep."
    try:
        text = _text(schema)
    except ValueError:
        return "The schema cannot be encoded as JSON."
    if len(text) > MAX_SCHEMA_CHARACTERS:
        return f"The schema has {len(text):,} characters; the limit is {MAX_SCHEMA_CHARACTERS:,}."
    if not is_storable_text(json.dumps(schema, ensure_ascii=False)) or "\\u0000" in text:
        return UNSTORABLE_TEXT
    try:
        _validator(text)
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
        return f"Not a JSON Schema: {_first_line(str(error))}"
    try:
        # References are followed when an answer is checked, and can double repeatedly.
        weight = _weight(schema, schema, {}, ())
    except ValueError as error:
        return str(error)
    if weight > _MOST_SCHEMAS:
        return f"With resolved references the schema has {weight:,} subschemas; the limit is {_MOST_SCHEMAS:,}."
    return None


def is_quick_schema(schema: Mapping[str, Any]) -> bool:
    """Whether ``schema_error`` is fast enough for the event loop: a schema may have hundreds of patterns."""
    return _is_deep(schema) or not _LITTLE_SCHEMA < len(json.dumps(schema)) <= MAX_SCHEMA_CHARACTERS


def flaw_in_schema_text(schema: str) -> str | None:
    """Run ``schema_error`` on JSON text, in a worker."""
    return schema_error(json.loads(schema))


def size_error(answers: Mapping[str, Any]) -> str | None:
    """Return why these answers cannot be stored, or ``None``."""
    if _is_deep(answers):
        return f"An answer is nested more than {_DEEPEST} levels deep."
    try:
        text = json.dumps(answers, ensure_ascii=False, allow_nan=False)
    except ValueError:
        return "The answers cannot be encoded as JSON."
    if len(text) > MAX_ANSWER_CHARACTERS:
        return f"The answers have {len(text):,} characters; the limit is {MAX_ANSWER_CHARACTERS:,}."
    return None if is_storable_text(text) and "\\u0000" not in text else UNSTORABLE_TEXT


def validation_error(schema: Mapping[str, Any], answer: Any) -> str | None:
    """Return what is wrong with an answer, or ``None``."""
    try:
        # Stops at the first error. A hostile schema can make listing all of them take minutes.
        _validator(_text(schema)).validate(answer)
    except jsonschema_rs.ValidationError as error:
        return _first_line(error.message)
    return None


def is_quick(schema: Mapping[str, Any], answer: Any) -> bool:
    """Whether the check is fast enough for the event loop: each character may meet each part of the schema."""
    return _parts(_text(schema)) * len(json.dumps(answer)) <= _LITTLE_WORK


def flaw_in_texts(schema: str, answer: str) -> str | None:
    """Run ``validation_error`` on JSON texts, in a worker."""
    return validation_error(json.loads(schema), json.loads(answer))


@lru_cache(maxsize=256)
def _parts(text: str) -> int:
    schema = json.loads(text)
    try:
        return _weight(schema, schema, {}, ())
    except ValueError:
        return _MOST_SCHEMAS


@lru_cache(maxsize=256)
def _validator(text: str) -> Any:
    return jsonschema_rs.validator_for(
        json.loads(text),
        retriever=_fetch_nothing,
        # The linear engine: an exploding pattern would block the whole server.
        pattern_options=jsonschema_rs.RegexOptions(size_limit=1_000_000, dfa_size_limit=1_000_000),
    )


def _fetch_nothing(uri: str) -> Any:
    raise ValueError(f"A schema cannot refer to other documents ({uri}).")


def _weight(part: Any, whole: Mapping[str, Any], known: dict[str, int], following: tuple[str, ...]) -> int:
    """Estimate how many schemas a part has after following its references."""
    if not isinstance(part, Mapping | list):
        return 0
    # Definitions count where they are referenced.
    skipped = ("$defs", "definitions", "enum", "const")
    inside = part if isinstance(part, list) else [inner for name, inner in part.items() if name not in skipped]
    weight = 1 + sum(_weight(inner, whole, known, following) for inner in inside)
    for pointer in _references(part):
        if pointer in following:
            raise ValueError(f"The schema refers to itself ({pointer}). Recursive schemas are not supported.")
        if pointer not in known:
            known[pointer] = _weight(_at(whole, pointer), whole, known, (*following, pointer))
        weight += known[pointer]
    return weight


def _references(part: Mapping[str, Any] | list[Any]) -> Iterator[str]:
    if not isinstance(part, Mapping):
        return
    for name in ("$dynamicRef", "$recursiveRef", "$id", "$anchor", "$dynamicAnchor"):
        if isinstance(part.get(name), str):
            raise ValueError(f"`{name}` is not supported. Use `$ref` with `#/$defs/…`.")
    pointer = part.get("$ref")
    if isinstance(pointer, str):
        if not pointer.startswith("#"):
            raise ValueError(f"A schema cannot refer to other documents ({pointer[:200]}).")
        yield pointer


def _at(whole: Mapping[str, Any], pointer: str) -> Any:
    found: Any = whole
    for step in pointer.removeprefix("#").split("/")[1:]:
        step = step.replace("~1", "/").replace("~0", "~")
        if isinstance(found, list) and step.isdecimal() and int(step) < len(found):
            found = found[int(step)]
        elif isinstance(found, Mapping) and step in found:
            found = found[step]
        else:
            raise ValueError(f"The schema refers to {pointer[:200]}, which is not in it.")
    return found


def _is_deep(value: Any) -> bool:
    level, within = 0, [value]
    while within:
        if level > _DEEPEST:
            return True
        inner = [v.values() if isinstance(v, Mapping) else v for v in within if isinstance(v, Mapping | list)]
        within, level = [one for many in inner for one in many], level + 1
    return False


def _text(schema: Mapping[str, Any]) -> str:
    return json.dumps(schema, allow_nan=False)


def _first_line(message: str) -> str:
    line = message.partition("\n")[0]
    return line if len(line) <= _LONGEST_FLAW else f"{line[:_LONGEST_FLAW]}…"
