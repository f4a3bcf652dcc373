"""Errors in the log: their stack and what is known about them, and no text that may be a user's."""

import errno
import json
import subprocess
import sys

import psycopg
import pytest
from psycopg import errors
from sqlalchemy.exc import DBAPIError

from toolcrib.core.errors import NotFound
from toolcrib.runtime.logged_errors import error_kind, format_error

SECRET = "what only the user knows"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (KeyError(SECRET), "KeyError"),
        (NotFound(SECRET), "toolcrib.core.errors.NotFound: NOT_FOUND"),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "/data/x"),
         "FileNotFoundError: No such file or directory /data/x"),
        (OSError(SECRET), "OSError"),
        (ModuleNotFoundError("No module named 'redis'"), "ModuleNotFoundError: No module named 'redis'"),
        (psycopg.OperationalError("connection refused"), "psycopg.OperationalError: connection refused"),
        (errors.CheckViolation(f"Failing row contains ({SECRET})."), "psycopg.errors.CheckViolation: SQLSTATE 23514"),
        (DBAPIError("select %s", [SECRET], errors.UniqueViolation(SECRET)),
         "sqlalchemy.exc.DBAPIError: psycopg.errors.UniqueViolation: SQLSTATE 23505"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)  # fmt: skip
def test_facts_of_an_error_are_known_and_its_text_is_not(error: Exception, kind: str) -> None:
    assert error_kind(error) == kind


def test_stack_has_every_cause_and_every_error_of_a_group() -> None:
    try:
        try:
            raise ExceptionGroup(SECRET, [ValueError(SECRET), TypeError(SECRET)])
        except ExceptionGroup as group:
            group.add_note(SECRET)
            raise RuntimeError(SECRET) from group
    except RuntimeError as error:
        text = format_error(error)

    for kind in ("ExceptionGroup", "ValueError", "TypeError", "RuntimeError"):
        assert f"\n{kind}\n" in f"\n{text}\n"
    assert "in test_stack_has_every_cause_and_every_error_of_a_group" in text
    assert SECRET not in text


def test_error_that_is_its_own_cause_has_an_end() -> None:
    one, other = ValueError(SECRET), TypeError(SECRET)
    one.__cause__, other.__cause__ = other, one

    assert format_error(one).count("Error") == 2


PROGRAM = """
import logging, sys, threading
from toolcrib.cli.serve import configure_logs

def fail():
    raise ValueError(sys.argv[1])

class Unfinished:
    def __del__(self):
        fail()

configure_logs()
thread = threading.Thread(target=fail)
thread.start()
thread.join()
Unfinished()
try:
    fail()
except ValueError:
    logging.getLogger("library").exception("It failed.")
"""


def test_errors_of_threads_finalizers_and_libraries_are_logged_without_their_text() -> None:
    ended = subprocess.run([sys.executable, "-c", PROGRAM, SECRET], capture_output=True, text=True, check=True)

    lines = [json.loads(line) for line in ended.stderr.splitlines()]
    assert [line["event"] for line in lines] == ["thread.failed", "finalizer.failed", "It failed."]
    assert all(line["exception"].endswith("ValueError") for line in lines)
    assert SECRET not in ended.stderr
