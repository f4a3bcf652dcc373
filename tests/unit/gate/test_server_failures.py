"""Failures of the server's machine and database are named; a defect is not called one of them."""

import errno

import pytest

from toolcrib.core.errors import DatabaseUnavailable, OutOfResources
from toolcrib.gate.server_failures import UNKNOWN_EFFECT, server_failure
from toolcrib.storage.database import OperationalError


@pytest.mark.parametrize(
    ("number", "named"),
    [
        (errno.ENOSPC, "The disk of the server is full."),
        (errno.EMFILE, "too many files and connections open"),
        (errno.EIO, "fails to read or to write"),
        (errno.ENOMEM, "no memory left"),
    ],
)
def test_what_the_machine_lacks_is_named_and_is_no_fact_about_files(number: int, named: str) -> None:
    failure = server_failure(OSError(number, "as the kernel says it", "/srv/secret/path"), UNKNOWN_EFFECT)

    assert isinstance(failure, OutOfResources)
    assert failure.code == "UNAVAILABLE"
    assert named in failure.message
    assert "says nothing about your files" in failure.message
    assert UNKNOWN_EFFECT in failure.message
    assert "secret" not in failure.message


def test_a_lost_database_is_named() -> None:
    failure = server_failure(OperationalError("the connection is lost"), UNKNOWN_EFFECT)

    assert isinstance(failure, DatabaseUnavailable)
    assert failure.message == f"The database is temporarily unavailable. {UNKNOWN_EFFECT}"


@pytest.mark.parametrize("error", [FileNotFoundError(errno.ENOENT, "no such file"), OSError("custom"), KeyError("x")])
def test_a_defect_is_none_of_them(error: Exception) -> None:
    assert server_failure(error, UNKNOWN_EFFECT) is None
