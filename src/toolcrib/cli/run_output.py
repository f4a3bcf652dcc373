"""The output of ``toolcrib run`` for programs: the result as one JSON object, alone or after a line for each event."""

import sys
from enum import StrEnum
from typing import Any

import typer

from toolcrib.cli.session_printer import SessionPrinter
from toolcrib.cli.terminal_text import print_json
from toolcrib.client import RunOut, StreamMessage
from toolcrib.core.errors import ToolcribError
from toolcrib.sdk.session_client import SessionClient

_MAX_CHANGES = 500


class OutputFormat(StrEnum):
    """What ``toolcrib run`` prints."""

    TEXT = "text"
    JSON = "json"
    STREAM_JSON = "stream-json"


class JsonPrinter(SessionPrinter):
    """Prints events as lines, if they are wanted, and keeps the agent's last message for the result."""

    def __init__(self, *, events: bool) -> None:
        super().__init__(quiet=True)
        self.answer = ""
        self._events = events

    def show(self, message: StreamMessage) -> None:
        if message.type == "chat:stream-end" and str(message.payload.get("content") or "").strip():
            self.answer = str(message.payload["content"])
        if self._events:
            typer.echo(message.model_dump_json(exclude_none=True))
            sys.stdout.flush()

    def print_result(self, conversation: SessionClient, begun: RunOut, status: int, *, needs_person: bool) -> None:
        """Prints how the run ended: the answer, what it cost, and the files that it changed."""
        location = conversation.location
        run = location.client.run(location.id, begun.id)
        print_json(
            {
                "type": "result",
                "session": run.session_id,
                "run": run.id,
                "status": "needs-person" if needs_person else run.end_reason or run.state,
                "exit_code": status,
                "result": self.answer,
                "error": run.error,
                "cost": None if run.cost is None else str(run.cost),
                "unpriced_turns": run.unpriced_turns,
                "input_tokens": run.input_tokens,
                "output_tokens": run.output_tokens,
                "turns": run.turns,
                "active_ms": run.active_ms,
                **_changes(conversation, run),
            }
        )


def _changes(conversation: SessionClient, run: RunOut) -> dict[str, Any]:
    """Returns the changed files, and how many there are. A viewer of the history sees them as `toolcrib log` does."""
    location = conversation.location
    try:
        found = location.client.call(location.id, "changes", {"run_id": str(run.id), "limit": _MAX_CHANGES})
    except ToolcribError as error:
        return {"changes": [], "changed_files": None, "changes_error": error.message}
    listed = [
        {name: one.get(name) for name in ("path", "from_path", "change", "added", "removed")}
        for one in found["changes"]
    ]
    return {"changes": listed, "changed_files": found["total"]}
