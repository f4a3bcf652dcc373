"""Prints the events of a session line by line: text as it streams, a line for each call, and how the run ended.

Escapes the text of agents and files, so that it cannot control the terminal.
"""

import os
import sys
from collections.abc import Mapping
from typing import Any, TextIO

import typer

from toolcrib.cli import terminal_text
from toolcrib.cli.review import REVIEW_TOOL, decided_event
from toolcrib.cli.terminal_text import one_line, prose
from toolcrib.client import StreamMessage
from toolcrib.core.display_text import open_end
from toolcrib.sdk.run_events import TextAssembler

_MAX_OUTPUT_LINES = 12
_LINE = 160


class SessionPrinter:
    """Prints the agent's text to ``out``, and the rest to the same terminal, or to standard error if it is a pipe."""

    def __init__(self, out: TextIO | None = None, *, quiet: bool = False) -> None:
        self._out = out or sys.stdout
        self._quiet = quiet
        self._coloured = self._out.isatty() and "NO_COLOR" not in os.environ
        self._mark, self._done, self._failed = _marks(self._out)
        self._words = TextAssembler()
        self._open_line = False
        self._unsaid = ""
        self._started: set[str] = set()
        self.last_plan: str | None = None
        # A run has left changes for a review.
        self.has_review = False

    def show(self, message: StreamMessage) -> None:
        payload = message.payload
        match message.type:
            case "chat:text-delta":
                if self._words.is_new_attempt(payload):
                    self.aside("(restarted)")
                self._say(self._words.fresh(payload))
            case "chat:stream-end":
                self._say(self._words.rest(payload))
                self._end_line()
                if payload.get("finishReason") == "withdrawn":
                    self.aside("(The answer above broke off and does not count. The model is asked again.)")
            case "chat:message" if payload.get("role") == "summary":
                self.aside(terminal_text.compacted(payload))
            case "chat:review" if payload.get("state") == "open":
                self.has_review = True
            case "chat:review":
                self.aside(decided_event(payload))
            case "chat:tool-start" | "chat:tool-result" if payload.get("toolName") == REVIEW_TOOL:
                # The event of the review says what it did.
                pass
            case "chat:tool-start":
                self._call(payload)
            case "chat:tool-result":
                self._result(payload)
            case "chat:run-state" if payload.get("state") == "ended":
                self._ended(payload)
            case "chat:run-state" if (wait := terminal_text.provider_wait(payload)) is not None:
                self.aside(wait, colour="yellow")
            case _:
                pass

    def aside(self, text: str, *, colour: str | None = None) -> None:
        """Prints a line that is not the agent's text."""
        self._end_line()
        if not self._quiet:
            typer.echo(typer.style(text, fg=colour) if colour and self._coloured else text, err=not self._out.isatty())

    def _say(self, words: str) -> None:
        # The end may be half of an emoji.
        words = self._unsaid + words
        self._unsaid = words[open_end(words) :]
        self._write(words[: open_end(words)])

    def _write(self, words: str) -> None:
        if words:
            self._out.write(prose(words))
            self._out.flush()
            self._open_line = not words.endswith("\n")

    def _call(self, payload: Mapping[str, Any]) -> None:
        self._started.add(payload["toolId"])
        self.last_plan = terminal_text.plan_written(payload) or self.last_plan
        text = f"{self._mark} {one_line(payload['toolName'], 60)} {terminal_text.about(payload.get('input'))}"
        self.aside(text.rstrip(), colour="cyan")

    def _result(self, payload: Mapping[str, Any]) -> None:
        text = str(payload.get("result") or "")
        if payload["toolId"] not in self._started:
            # Denied or rejected before it started.
            self._call(payload)
        if payload.get("status") == "error":
            self.aside(f"  {self._failed} {one_line(text, 400)}", colour="red")
            return
        self.aside(f"  {self._done}", colour="green")
        lines = text.strip("\n").split("\n") if payload["toolName"] == "bash" and text.strip() else []
        if (more := len(lines) - _MAX_OUTPUT_LINES) > 0:
            self.aside(f"    … {more:,} earlier lines")
        for line in lines[-_MAX_OUTPUT_LINES:]:
            self.aside(f"    {one_line(line, _LINE)}")

    def _ended(self, payload: Mapping[str, Any]) -> None:
        self._end_line()
        if (failure := terminal_text.failure(payload)) is not None:
            self.aside(f"{self._failed} {failure}", colour="red")
        elif (stop := terminal_text.stop(payload)) is not None:
            self.aside(stop, colour="yellow")

    def _end_line(self) -> None:
        words, self._unsaid = self._unsaid, ""
        self._write(words)
        if self._open_line:
            self._out.write("\n")
            self._out.flush()
            self._open_line = False


def _marks(out: TextIO) -> tuple[str, str, str]:
    """Returns marks that the encoding of the output supports."""
    try:
        "●✓✗".encode(out.encoding or "ascii")
    except (LookupError, UnicodeError):
        return "*", "ok", "failed:"
    return "●", "✓", "✗"
