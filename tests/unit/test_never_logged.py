"""The search for what must not be logged finds it."""

import secrets
import uuid
from collections.abc import Callable

import httpx2
import pytest

from tests import never_logged

TOKEN = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJlIG9mIHRoaXMgdG9rZW4"


def _sent(**options: object) -> None:
    transport = httpx2.MockTransport(lambda _: httpx2.Response(204))
    with httpx2.Client(transport=transport, base_url="http://127.0.0.1") as client:
        client.post("/tools", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("send", "log"),
    [
        (
            lambda text: {"json": {"args": {"content": f"a\nThe rate of {text} is 19 %.\n"}}},
            "wrote The rate of {} is 19",
        ),
        (lambda text: {"json": {"password": f"long{text}enough"}}, "login with long{}enough failed"),
        (lambda text: {"headers": {"Authorization": f"Bearer {TOKEN}{text}"}}, '{{"token": "' + TOKEN + '{}"}}'),
    ],
    ids=["a content", "a password", "a token"],
)
def test_what_a_client_sent_is_found_in_a_log(send: Callable[[str], dict[str, object]], log: str) -> None:
    value = secrets.token_hex(10)
    line = log.format(value).encode()
    never_logged.check_log(line, "a log")
    _sent(**send(value))

    with pytest.raises(AssertionError, match="a log has"):
        never_logged.check_log(b"started\n" + line + b"\nended\n", "a log")


def test_names_and_paths_may_be_logged() -> None:
    name = secrets.token_hex(12)
    _sent(json={"name": name, "path": f"/docs/of the year/{name}.md"})

    never_logged.check_log(f"GET /docs/{name}.md of {name}".encode(), "a log")


def test_an_id_may_be_logged_even_if_it_was_sent_for_a_token() -> None:
    user = str(uuid.uuid4())
    _sent(headers={"Authorization": f"Bearer {user}"})

    never_logged.check_log(f"PATCH /users/{user}".encode(), "a log")
