"""The text that a model reads for a result, in every form of result."""

import json
from typing import Any
from uuid import UUID

import pytest

from toolcrib.policy.model_results import bounded_text, model_result, model_text, text_piece

CALL = UUID("01a1e48a-bc5f-77f4-ba62-25f500b9d2a5")
PICTURE = {"type": "image", "mime_type": "image/png", "data": "A" * 90_000}


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ('She said: "Hi".', 'She said: "Hi".'),
        ({"output": 'a "b"', "metadata": {"x": 1}, "is_error": False}, 'a "b"'),
        ({"output": 'a "b"'}, 'a "b"'),
        ({"text": 'a "b"'}, 'a "b"'),
        ({"text": "a", "omitted": "9 more characters were truncated."}, "a\n[9 more characters were truncated.]"),
        ({"text": '{"n": 1}', "structured": {"n": 1}}, '{"n":1}'),
        ({"text": "", "structured": {"n": 1}}, '{"n":1}'),
        ({"text": "One.", "structured": {"n": 1}}, '{"text":"One.","structured":{"n":1}}'),
        ({"content": "é", "ok": True}, '{"ok":true,"content":"é"}'),
        ([1, {"bb": 1, "a": 2}], '[1,{"a":2,"bb":1}]'),
        (None, "null"),
    ],
)
def test_a_result_is_encoded_once_and_in_its_own_form(result: Any, text: str) -> None:
    assert model_text(result) == (text, False)
    assert bounded_text(result, None, CALL) == (text, False)


@pytest.mark.parametrize("more", [{}, {"changed": [{"path": "/a.png"}], "skipped": []}])
def test_the_bytes_of_images_are_left_out_and_truncate_nothing(more: dict[str, Any]) -> None:
    answer = {"text": "A picture.", "media": [PICTURE], **more}

    text, _ = model_text(answer)

    assert json.loads(text)["media"][0].keys() == {"type", "mime_type", "left_out"}
    assert model_result(answer, CALL).value is answer


def test_an_error_has_its_message_and_its_fields() -> None:
    error = {"code": "X", "message": "Wrong.", "fields": {"path": "Missing."}}

    assert model_text(None, error) == ("Wrong.: path: Missing.", True)


@pytest.mark.parametrize(
    "result",
    [
        "x\n" * 50_000,
        {"output": "é\n" * 50_000, "metadata": {"truncated": False}, "is_error": False},
        {"text": '"' * 100_000},
        {"text": "a", "structured": {"rows": ["row"] * 50_000}},
        {"truncated": False, "zzzzzzzzzzzzz": "x" * 100_000},
        ["item"] * 50_000,
        {"a": "x" * 100_000, "deep": [{"b": [{"c": "y" * 100_000}]}]},
    ],
)
def test_a_truncated_result_fits_and_names_the_offset_of_the_rest(result: Any) -> None:
    shown = model_result(result, CALL)
    text, _ = model_text(shown.value)
    whole, _ = model_text(result)

    offset = shown.truncation["offset"]
    assert len(json.dumps(shown.value, ensure_ascii=False, separators=(",", ":")).encode()) <= 60_000
    assert f"offset {offset}." in text
    assert str(CALL) in text
    assert "truncated" in text
    assert 0 < offset < len(whole)
    assert bounded_text(shown.value, None, CALL) == bounded_text(result, None, CALL) == (text, False)


def test_pieces_make_the_complete_text_and_each_fits() -> None:
    whole = '"é\x01\U0001f600' * 30_000
    text, offset = "", 0
    while offset < len(whole):
        piece, end = text_piece(whole, offset, CALL)
        assert len(json.dumps(piece, ensure_ascii=False).encode()) < 60_000
        assert piece.startswith(whole[offset:end])
        assert (end < len(whole)) == piece.endswith(f"offset {end}.]")
        text, offset = text + whole[offset:end], end

    assert text == whole
