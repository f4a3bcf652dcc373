"""One table maps every error to its HTTP status."""

import json
from collections.abc import Iterator

import pytest
from psycopg import errors as database_errors
from starlette.exceptions import HTTPException

from toolcrib.api.http_errors import STATUS, answer_to
from toolcrib.core.errors import (
    ApprovalRequired,
    BadArguments,
    BaseChanged,
    Conflict,
    Forbidden,
    NotFound,
    PermissionDenied,
    ProtectedPath,
    Superseded,
    TimedOut,
    TooLarge,
    ToolcribError,
    ToolFailed,
    Unauthenticated,
)


def kinds(root: type[ToolcribError] = ToolcribError) -> Iterator[type[ToolcribError]]:
    yield root
    for kind in root.__subclasses__():
        yield from kinds(kind)


def test_every_toolcrib_error_has_a_status() -> None:
    # Errors that only a client raises, such as an unreachable server, never become a response.
    elsewhere = ("toolcrib.client", "toolcrib.sdk")
    ours = [kind for kind in kinds() if not kind.__module__.startswith(elsewhere)]

    assert {kind.code for kind in ours} <= set(STATUS)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (BadArguments({"path": "Field required"}), 400),
        (ToolFailed("x"), 400),
        (ProtectedPath("x"), 400),
        (Unauthenticated("x"), 401),
        (Forbidden("x"), 403),
        (PermissionDenied("x"), 403),
        (ApprovalRequired("x"), 403),
        (NotFound("x"), 404),
        (Conflict("x"), 409),
        (BaseChanged("x"), 409),
        (Superseded("x"), 409),
        (TooLarge("x"), 413),
        (TimedOut("x"), 504),
        (database_errors.AdminShutdown(), 503),
        (database_errors.DeadlockDetected(), 503),
        (database_errors.StatementTooComplex(), 500),
        (HTTPException(404), 404),
        (HTTPException(418), 418),
        (KeyError("x"), 500),
    ],
)
def test_an_error_is_returned_with_its_status_and_in_the_envelope(error: Exception, status: int) -> None:
    response = answer_to(error)

    body = json.loads(bytes(response.body))
    assert response.status_code == status
    assert body["success"] is False
    assert body["error"]
    assert body["code"] in STATUS
    assert body.get("fields") == (getattr(error, "fields", None) or None)


def test_an_error_while_reading_a_body_keeps_its_status() -> None:
    wrapped = HTTPException(400, "There was an error parsing the body")
    wrapped.__cause__ = TooLarge("Too much")

    assert answer_to(wrapped).status_code == 413
