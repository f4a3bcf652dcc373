"""The error hierarchy matches its diagram, and the HTTP table maps every code."""

import re
from collections.abc import Iterator

import pytest

from toolcrib.api.http_errors import STATUS
from toolcrib.core import errors
from toolcrib.core.errors import (
    BadArguments,
    CallDenied,
    Conflict,
    SandboxViolation,
    ToolcribError,
    ToolFailed,
    error_text,
)


def below(kind: type[ToolcribError]) -> Iterator[type[ToolcribError]]:
    yield kind
    for child in kind.__subclasses__():
        if child.__module__ == errors.__name__:
            yield from below(child)


TREE = list(below(ToolcribError))


@pytest.mark.parametrize("kind", TREE, ids=lambda kind: kind.__name__)
def test_every_error_has_a_code_in_the_http_table(kind: type[ToolcribError]) -> None:
    assert kind.code in STATUS
    assert re.fullmatch(r"[A-Z]+(_[A-Z]+)*", kind.code)


def test_the_diagram_matches_the_hierarchy() -> None:
    assert errors.__doc__ is not None
    drawn = {
        match[2]: len(match[1]) // 4
        for match in re.finditer(r"^((?:[│├└─ ]{4})*)([A-Z]\w+)(?: {2,}|$)", errors.__doc__, re.MULTILINE)
    }
    found = {kind.__name__: len(kind.__mro__) - len(ToolcribError.__mro__) for kind in TREE}

    assert {name: drawn.get(name) for name in found} == found


def test_failures_and_denials_do_not_overlap() -> None:
    failed, refused = set(below(ToolFailed)), set(below(CallDenied))

    assert not failed & refused
    assert set(below(SandboxViolation)) < refused


def test_bad_arguments_name_the_field() -> None:
    error = BadArguments({"path": "Is empty."})

    assert (error.message, error.fields) == ("Validation failed", {"path": "Is empty."})
    assert error_text(error) == "Is empty."
    assert error_text(Conflict("In the way.")) == "In the way."
