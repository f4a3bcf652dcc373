"""Values as JSON that PostgreSQL's jsonb takes."""

import json
import re
from typing import Any

from pydantic_core import PydanticSerializationError, to_json

_UNSTORABLE = re.compile(r"\\u0000|\\u[dD][89a-fA-F][0-9a-fA-F]{2}")


def json_text(value: Any) -> str:
    """JSON text. jsonb cannot hold NUL characters or lone surrogates: they are shown as U+FFFD."""
    try:
        text = to_json(value, fallback=str, inf_nan_mode="null").decode()
    except (PydanticSerializationError, UnicodeEncodeError):
        # Half of a surrogate pair, which UTF-8 cannot hold. ASCII can: it spells it out.
        text = json.dumps(value, default=str)
        return _UNSTORABLE.sub(r"\\ufffd", text)
    return text.replace("\\u0000", "\\ufffd") if "\\u0000" in text else text
