"""Every request body can be encoded."""

import json

from toolcrib.providers.stream_reader import encoded


def test_an_ordinary_body_is_encoded_as_its_json() -> None:
    assert encoded({"a": ["ü", 1, None, True]}) == '{"a":["ü",1,null,true]}'.encode()


def test_values_that_json_or_utf8_lack_are_replaced() -> None:
    body = {"half \ud800": "x\udfff", "nan": float("nan"), "inf": [float("-inf")], "fine": 1.5}

    assert json.loads(encoded(body)) == {"half \ufffd": "x\ufffd", "nan": "nan", "inf": ["-inf"], "fine": 1.5}


def test_too_deep_nesting_is_cut() -> None:
    nested: object = "core"
    for _ in range(100_000):
        nested = [nested]

    assert b"core" not in encoded({"a": nested})
