"""The tree of errors: drawn as it is, and each with a code that the HTTP table knows."""

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


@pytest.mark.req("AP-1", part="every error has a status")
@pytest.mark.parametrize("kind", TREE, ids=lambda kind: kind.__name__)
def test_every_error_has_a_code_that_the_http_table_knows(kind: type[ToolcribError]) -> None:
    assert kind.code in STATUS
    assert re.fullmatch(r"[A-Z]+(_[A-Z]+)*", kind.code)


def test_the_tree_is_drawn_as_it_is() -> None:
    assert errors.__doc__ is not None
    drawn = {
        match[2]: len(match[1]) // 4
        for match in re.finditer(r"^((?:[│├└─ ]{4})*)([A-Z]\w+)(?: {2,}|$)", errors.__doc__, re.MULTILINE)
    }
    found = {kind.__name__: len(kind.__mro__) - len(ToolcribError.__mro__) for kind in TREE}

    assert {name: drawn.get(name) for name in found} == found


@pytest.mark.req("TL-7", part="a failure, a refusal and a violation are told apart")
def test_failures_and_refusals_do_not_overlap() -> None:
    failed, refused = set(below(ToolFailed)), set(below(CallDenied))

    assert not failed & refused
    assert set(below(SandboxViolation)) < refused


def test_bad_arguments_say_which_field() -> None:
    error = BadArguments({"path": "Is empty."})

    assert (error.message, error.fields) == ("Validation failed", {"path": "Is empty."})
    assert error_text(error) == "Is empty."
    assert error_text(Conflict("In the way.")) == "In the way."
