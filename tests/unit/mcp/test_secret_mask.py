"""Secrets in what a program writes are replaced by their names, however an encoder wrote them."""

import json

import pytest

from toolcrib.mcp.secret_mask import SecretMask

TOKEN = "abc/def+g'h<i>&\"j\\k"


@pytest.mark.parametrize(
    "line",
    [
        json.dumps({"text": f"key {TOKEN}!"}),
        json.dumps({"text": f"key {TOKEN}!"}).replace("/", "\\/"),
        json.dumps({"text": f"key {TOKEN}!"}).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
        .replace("'", "\\u0027").replace("+", "\\u002b"),
    ],
)  # fmt: skip
def test_secret_is_masked_in_every_common_spelling(line: str) -> None:
    assert json.loads(line) == {"text": f"key {TOKEN}!"}
    assert json.loads(SecretMask({"KEY": TOKEN}).json_line(line.encode())) == {"text": "key [secret KEY]!"}


def test_document_stays_valid_with_digits_as_a_secret() -> None:
    line = SecretMask({"PIN": "1234567890"}).json_line(b'{"id": 1234567890, "text": "1234567890"}')
    assert json.loads(line) == {"id": 9999999999, "text": "9999999999"}


def test_longer_secret_is_masked_before_one_that_it_contains() -> None:
    mask = SecretMask({"SHORT": "password", "LONG": "password-and-more"})
    assert mask.text("password-and-more, password") == "[secret LONG], [secret SHORT]"


def test_short_values_are_left_as_they_are() -> None:
    mask = SecretMask({"DEBUG": "1", "MODE": "", "NAME": "toolbox"})
    assert mask.json_line(b'{"id": 1, "text": "toolbox"}') == b'{"id": 1, "text": "toolbox"}'
