"""Turns what a session's watchers are told into the events of one run."""

from collections.abc import Iterator, Mapping
from typing import Any
from uuid import UUID

from toolcrib.client import Run, Told
from toolcrib.library.conversing import is_end
from toolcrib.library.events import Called, Calling, Event, Output, Result, Text
from toolcrib.library.words import Words


class Ear:
    """Listens to one run."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._words = Words()
        self._last_message = ""

    def hear(self, told: Told) -> Iterator[Event]:
        """What it means for the run; nothing, for much of what is told."""
        payload = told.payload
        match told.type:
            case "chat:text-delta":
                yield from _text(self._words.fresh(payload))
            case "chat:stream-end":
                self._last_message = payload.get("content") or self._last_message
                yield from _text(self._words.rest(payload))
            case "chat:tool-start":
                given = payload.get("input")
                arguments = given if isinstance(given, Mapping) else {}
                yield Calling(UUID(payload["toolId"]), payload["toolName"], arguments)
            case "chat:tool-delta":
                yield Output(UUID(payload["toolId"]), payload["chunk"])
            case "chat:tool-result":
                yield Called(
                    UUID(payload["toolId"]),
                    payload["toolName"],
                    ok=payload.get("status") == "success",
                    result=str(payload.get("result") or ""),
                )
            case "chat:run-state" if is_end(told, self._run):
                yield self._result(payload)
            case _:
                pass

    def _result(self, payload: Mapping[str, Any]) -> Result:
        return Result(
            text=self._last_message,
            ending=str(payload.get("ending")),
            run_id=self._run.id,
            session_id=self._run.session_id,
            error=payload.get("error"),
        )


def _text(words: str) -> Iterator[Text]:
    if words:
        yield Text(words)
