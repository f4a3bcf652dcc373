"""Values as JSON that PostgreSQL's jsonb takes."""

from typing import Any

from pydantic_core import to_json


def json_text(value: Any) -> str:
    """JSON text. jsonb cannot hold NUL characters or lone surrogates: they are shown as U+FFFD."""
    text = to_json(value, fallback=str, inf_nan_mode="null").decode()
    return text.replace("\\u0000", "\\ufffd") if "\\u0000" in text else text
