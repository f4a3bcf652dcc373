"""The chat line by line, for pipes, screen readers and people who prefer it."""

import sys
from contextlib import suppress
from pathlib import Path

import typer
from rich.console import Console

from toolcrib.cli.command_options import WorkspaceLocation
from toolcrib.cli.decision_prompts import DecisionPrompt
from toolcrib.cli.run import follow_run
from toolcrib.cli.session_printer import SessionPrinter
from toolcrib.cli.slash_commands import SlashCommands, model_of, trust_of
from toolcrib.cli.terminal_text import one_line, plain
from toolcrib.client import AgentData, ServerUnreachable, SessionData
from toolcrib.core.errors import ToolcribError
from toolcrib.sdk.session_client import SessionClient

_SHOWN_MESSAGES = 6


class LineChat:
    """Reads lines in a loop: runs slash commands and sends messages."""

    def __init__(self, location: WorkspaceLocation, session: SessionData, agent: AgentData) -> None:
        self._location = location
        self._printer = SessionPrinter()
        self._decisions = DecisionPrompt(location, self._printer, read=_line)
        self._go_to(session, agent)
        self.unsent = ""

    @property
    def session(self) -> SessionData:
        return self._conversation.session

    def go_on(self, first: str = "", *, note: str = "") -> None:
        """Runs until the person quits. Prints ``note`` first. ``first`` is a message that was not delivered."""
        if note:
            typer.echo(note, err=True)
        self._greet()
        self._load_history()
        _remember_lines(self._location.notes)
        while True:
            try:
                text, first = first or _line("> ").strip(), ""
            except (EOFError, KeyboardInterrupt):
                typer.echo("")
                return
            if not text:
                continue
            try:
                if text.startswith("/"):
                    if not self._run_command(text):
                        return
                else:
                    self._say(text)
            except ServerUnreachable:
                raise
            except ToolcribError as error:
                typer.secho(error.message, fg="red", err=True)
            except EOFError:
                typer.echo(
                    "The call is still pending. Decide it with `toolcrib approve` or `toolcrib chat --resume last`."
                )
                return

    def _go_to(self, session: SessionData, agent: AgentData) -> None:
        self._agent, self._conversation = agent, SessionClient(self._location, session)

    def _greet(self) -> None:
        mode = ", plan mode" if self.session.mode == "plan" else ""
        trust = trust_of(self.session, self._agent)
        typer.echo(f"{one_line(self._agent.name, 40)}, {model_of(self._agent)}, {trust}{mode}")
        typer.echo(f"in {one_line(self._location.workspace.name, 74)}. /help lists commands.")

    def _load_history(self) -> None:
        """Prints the latest messages, and follows a run that has not ended."""
        if self.session.last_seq == 0:
            return
        for message in self._location.client.messages(self._location.id, self.session.id)[-_SHOWN_MESSAGES:]:
            if message.content.strip():
                typer.echo(f"{'> ' if message.role == 'user' else ''}{plain(message.content)}")
        for run in self._location.client.runs(self._location.id, self.session.id):
            if run.state != "ended":
                follow_run(self._conversation, run, self._printer, self._decisions)

    def _say(self, text: str) -> None:
        self.unsent = text
        run = self._conversation.send(text)
        self.unsent = ""
        follow_run(self._conversation, run, self._printer, self._decisions)

    def _run_command(self, text: str) -> bool:
        """Runs a slash command. Returns whether the chat continues."""
        reply = SlashCommands(self._location, self.session, self._agent).run(text)
        if reply.apply is not None:
            reply = reply.apply()
        console = Console()
        for line in reply.lines:
            console.print(line, soft_wrap=True)
        if reply.agent is not None:
            self._agent = reply.agent
        if reply.session is not None and reply.session.id == self.session.id:
            self._conversation.session = reply.session
        elif reply.session is not None:
            self._go_to(reply.session, self._agent)
            self._greet()
            self._load_history()
        return not reply.leave


def _line(prompt: str) -> str:
    """Reads a line, with a prompt if it is typed. Raises EOFError at the end of the input."""
    if sys.stdin.isatty():
        return input(prompt)
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.rstrip("\n")


def _remember_lines(notes: Path | None) -> None:
    """Loads the input history for the arrow keys, if the terminal supports it."""
    if not sys.stdin.isatty() or notes is None:
        return
    with suppress(ImportError, OSError):
        import atexit
        import readline

        history = notes / "typed"
        history.touch(mode=0o600)
        readline.read_history_file(history)
        readline.set_history_length(1_000)
        atexit.register(readline.write_history_file, history)
