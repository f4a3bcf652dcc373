"""``toolcrib chat``: a conversation, full-screen or line by line."""

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from toolcrib.cli.command_options import AgentOption, WorkspaceLocation, WorkspaceSelection, aside, with_options
from toolcrib.cli.decision_prompts import DecisionPrompt
from toolcrib.cli.message_context import (
    AttachedText,
    command_text,
    prepare_message,
    run_command,
    split_attached,
)
from toolcrib.cli.review import NOTHING, ask_review
from toolcrib.cli.run import TAKEN_OVER, PlanOption, TrustOption, follow_run
from toolcrib.cli.session_printer import SessionPrinter
from toolcrib.cli.sessions import ContinueOption, ResumeOption, open_session
from toolcrib.cli.slash_commands import SlashCommands, model_of, trust_of
from toolcrib.cli.terminal_text import error_text, one_line, plain, print_lines, prose, short_id
from toolcrib.client import AgentOut, ServerUnreachable, SessionOut
from toolcrib.client.http_client import StreamHandle
from toolcrib.core.errors import ToolcribError
from toolcrib.sdk.session_client import SessionClient

_SHOWN_MESSAGES = 6


@with_options(WorkspaceSelection)
def chat(
    selection: WorkspaceSelection,
    agent: AgentOption = None,
    trust: TrustOption = None,
    resume: ResumeOption = None,
    latest: ContinueOption = False,
    plan: PlanOption = False,
    lines: Annotated[bool, typer.Option("--plain", help="Line by line, for pipes and screen readers.")] = False,
) -> None:
    """Chat with an agent about a directory. It asks before it does what cannot be undone.

    Example: toolcrib chat --continue
    """
    unsent, note = "", ""
    while True:
        with selection.open() as location:
            session, chosen_agent = open_session(
                location, resume=resume, latest=latest, agent=agent, mode="plan" if plan else "build", trust=trust
            )
            talk = _talk(location, session, chosen_agent, lines=lines)
            try:
                talk.go_on(unsent, note=note)
                return
            except ServerUnreachable:
                if not location.served_elsewhere:
                    raise
                # The process that served the directory has ended. This one takes over.
                resume, unsent, note = str(talk.session.id), talk.unsent, TAKEN_OVER
                latest, agent, plan, trust = False, None, False, None


def _talk(location: WorkspaceLocation, session: SessionOut, agent: AgentOut, *, lines: bool) -> "LineChat | ScreenChat":
    return (LineChat if lines or not is_screen() else ScreenChat)(location, session, agent)


def is_screen() -> bool:
    """Whether the terminal supports a full-screen application. That of Windows lacks what ours needs."""
    if sys.platform == "win32":
        return False
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")


class ScreenChat:
    """The full-screen chat, with the interface of ``LineChat``."""

    def __init__(self, location: WorkspaceLocation, session: SessionOut, agent: AgentOut) -> None:
        self.session = session
        self.unsent = ""
        self._location = location
        self._agent = agent

    def go_on(self, first: str = "", *, note: str = "") -> None:
        """Runs until the person quits. Raises ServerUnreachable if the process that served the chat has ended."""
        # Imported here: the line chat needs none of the widgets.
        from toolcrib.cli.terminal.chat_app import ChatApp
        from toolcrib.cli.terminal.terminal_driver import HUNG_UP

        app = ChatApp(self._location, self.session, self._agent, first=first, note=note)
        # The chat has its own handlers, which restore the terminal.
        before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
        try:
            app.run()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        self.session, self.unsent = app.session, app.unsent
        if app.lost is not None:
            raise app.lost
        if app.transcript.seen and app.return_code != HUNG_UP:
            if app.transcript.run_id is not None:
                aside("The run has not ended. It goes on when the chat does.")
            aside(f"Continue with: toolcrib chat --resume {short_id(app.session.id)}")
        raise typer.Exit(app.return_code or 0)


class LineChat:
    """Reads lines in a loop: runs slash commands and sends messages."""

    def __init__(self, location: WorkspaceLocation, session: SessionOut, agent: AgentOut) -> None:
        self._location = location
        self._printer = SessionPrinter()
        self._decisions = DecisionPrompt(location, self._printer, read=_line)
        self._conversation, self._agent = SessionClient(location, session), agent
        # What the next message brings: images and PDFs, and the commands that the person ran.
        self._attachments: list[str | Path] = []
        self._ran: list[AttachedText] = []
        self.unsent = ""

    @property
    def session(self) -> SessionOut:
        return self._conversation.session

    def go_on(self, first: str = "", *, note: str = "") -> None:
        """Runs until the person quits. Prints ``note`` first. ``first`` is a message that was not delivered."""
        if note:
            aside(note)
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
                elif text.startswith("!") and (command := text[1:].strip()):
                    self._execute(command)
                else:
                    self._say(text)
            except ServerUnreachable:
                raise
            except ToolcribError as error:
                typer.secho(error_text(error), fg="red", err=True)
            except EOFError:
                typer.echo(
                    "The call is still pending. Decide it with `toolcrib approve` or `toolcrib chat --resume last`."
                )
                return

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
                words, _ = split_attached(message.content)
                typer.echo(f"{'> ' if message.role == 'user' else ''}{prose(words)}")
        for run in self._location.client.runs(self._location.id, self.session.id):
            if run.state != "ended" and not run.held:
                follow_run(self._conversation, run, self._printer, self._decisions, review_with="/review")

    def _say(self, text: str) -> None:
        self.unsent = text
        message = prepare_message(self._location, text, attachments=self._attachments, attached=self._ran)
        run = self._conversation.send(message.text, attachments=message.attachments)
        self.unsent, self._attachments, self._ran = "", [], []
        follow_run(self._conversation, run, self._printer, self._decisions, review_with="/review")

    def _execute(self, command: str) -> None:
        """Executes the person's own command in the workspace. Its output goes with the next message."""

        def show(text: str) -> None:
            typer.echo(plain(text), nl=False)

        handle = StreamHandle()
        try:
            result = run_command(self._location, self.session.id, command, on_output=show, handle=handle)
        except KeyboardInterrupt:
            handle.close()
            typer.echo("Cancelled.")
            return
        self._ran.append(command_text(command, result))
        code = (result.get("metadata") or {}).get("exitCode")
        typer.secho(f"(exit code {code}; your next message brings the output)", dim=True, err=True)

    def _run_command(self, text: str) -> bool:
        """Runs a slash command. Returns whether the chat continues."""
        if text == "/review":
            self._review()
            return True
        reply = SlashCommands(self._location, self.session, self._agent).run(text)
        if reply.apply is not None:
            reply = reply.apply()
        print_lines(reply.lines)
        if reply.attachment is not None:
            self._attachments.append(reply.attachment)
        if reply.run is not None:
            follow_run(self._conversation, reply.run, self._printer, self._decisions, review_with="/review")
        if reply.agent is not None:
            self._agent = reply.agent
        if reply.session is not None and reply.session.id == self.session.id:
            self._conversation.session = reply.session
        elif reply.session is not None:
            self._conversation = SessionClient(self._location, reply.session)
            self._greet()
            self._load_history()
        return not reply.leave

    def _review(self) -> None:
        shown = self._location.client.review(self._location.id, self.session.id, whole=True)
        if shown.total:
            ask_review(self._location, shown, _line)
        else:
            typer.echo(NOTHING)


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
