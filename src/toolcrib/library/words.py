"""Puts the pieces of a streamed text together: a piece that comes again is not said again."""

from collections.abc import Mapping
from typing import Any


class Words:
    """What of each message was heard so far."""

    def __init__(self) -> None:
        self._heard: dict[str, tuple[int, int]] = {}

    def is_new_attempt(self, payload: Mapping[str, Any]) -> bool:
        """Whether the message is begun again: what was heard of it does not count."""
        before, _ = self._heard.get(payload["messageId"], (payload["attempt"], 0))
        return bool(payload["attempt"] > before)

    def fresh(self, payload: Mapping[str, Any]) -> str:
        """What a ``chat:text-delta`` says that was not heard yet."""
        source, attempt, offset, text = (payload[name] for name in ("messageId", "attempt", "offset", "content"))
        before, length = self._heard.get(source, (attempt, 0))
        if attempt < before:
            return ""
        if attempt > before:
            length = 0
        # A piece that was heard already, whole or in part, comes again to who joins in the middle.
        self._heard[source] = (attempt, max(length, offset + len(text)))
        return str(text[max(0, length - offset) :])

    def rest(self, payload: Mapping[str, Any]) -> str:
        """What a ``chat:stream-end`` has that was not heard while it was said."""
        content = payload.get("content") or ""
        _, length = self._heard.pop(payload["messageId"], (0, 0))
        return str(content[length:])
