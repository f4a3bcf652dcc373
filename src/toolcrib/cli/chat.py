"""``toolcrib chat``: a conversation, line by line. Works in any terminal, in pipes, and with a screen reader."""

import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from toolcrib.cli.deciding import Decider
from toolcrib.cli.deeds import tell_changes
from toolcrib.cli.narrating import Narrator
from toolcrib.cli.place import HERE, DirectoryOption, Place, ServerOption, WorkspaceOption, open_place
from toolcrib.cli.run import AgentOption, TrustOption, followed
from toolcrib.cli.sessions import found_session
from toolcrib.cli.showing import one_line, plain
from toolcrib.client import Agent, NoAnswer, Session
from toolcrib.domain.agents import Trust
from toolcrib.domain.errors import NotFound, ToolcribError
from toolcrib.library.conversing import Conversation
from toolcrib.library.deeds import last_deed, last_undo, take_back
from toolcrib.library.staff import chosen_agent

_HELP = """\
/undo            take back what the last run did
/redo            do it again after all
/agent [NAME]    list the agents, or talk to another one
/trust [LEVEL]   how often you are asked: supervised, guided or autonomous
/plan, /new      begin another session, in plan mode or not
/quit            end, as Ctrl-D does; Ctrl-C stops a run"""
_SHOWN_MESSAGES = 6


def chat(
    agent: AgentOption = None,
    trust: TrustOption = None,
    resume: Annotated[
        str | None, typer.Option("--resume", "-r", help="An earlier session: its id, how it ends, or `last`.")
    ] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Begin in plan mode: look, and propose.")] = False,
    directory: DirectoryOption = HERE,
    server: ServerOption = None,
    workspace: WorkspaceOption = None,
) -> None:
    """Talk with an agent about a directory. You are asked before it changes something, and can undo it.

    Example: toolcrib chat --resume last
    """
    unsent = ""
    while True:
        with open_place(directory, server=server, workspace=workspace) as place:
            talk = _Talk(place, Narrator())
            try:
                if resume is None:
                    talk.begin(chosen_agent(place, agent), mode="plan" if plan else "build", trust=trust)
                else:
                    talk.resume(found_session(place, resume))
                talk.go_on(unsent)
                return
            except NoAnswer:
                if not place.served_elsewhere or talk.session_id is None:
                    raise
                # Another terminal served the directory, and has ended: now it is our turn.
                resume, unsent = talk.session_id, talk.unsent
                typer.echo("The terminal that served this directory has ended. Going on here.", err=True)


class _Talk:
    """The loop: a line is read, a command is obeyed or a message is answered."""

    def __init__(self, place: Place, narrator: Narrator) -> None:
        self._place = place
        self._narrator = narrator
        self._decider = Decider(place, narrator, read=_line)
        self._agent: Agent
        self._conversation: Conversation
        self.session_id: str | None = None
        self.unsent = ""

    def begin(self, agent: Agent, *, mode: str, trust: str | None) -> None:
        session = self._place.client.create_session(self._place.id, agent_id=agent.id, mode=mode, trust=trust)
        self._agent, self._conversation = agent, Conversation(self._place, session)
        self.session_id = str(session.id)
        self._greet(session)

    def resume(self, session: Session) -> None:
        self._agent = chosen_agent(self._place, str(session.agent_id))
        self._conversation = Conversation(self._place, session)
        self.session_id = str(session.id)
        self._greet(session)
        for message in self._place.client.messages(self._place.id, session.id)[-_SHOWN_MESSAGES:]:
            if message.content.strip():
                typer.echo(f"{'> ' if message.role == 'user' else ''}{plain(message.content)}")
        for run in self._place.client.runs(self._place.id, session.id):
            if run.state != "ended":
                followed(self._conversation, run, self._narrator, self._decider)

    def go_on(self, first: str = "") -> None:
        """Until the person leaves. ``first`` is what they said when nobody heard it."""
        _remember_lines(self._place.notes)
        while True:
            try:
                said, first = first or _line("> ").strip(), ""
            except (EOFError, KeyboardInterrupt):
                typer.echo("")
                return
            if said in ("/quit", "/exit"):
                return
            if not said:
                continue
            try:
                self._obey(said) if said.startswith("/") else self._say(said)
            except NoAnswer:
                raise
            except ToolcribError as error:
                typer.secho(error.message, fg="red", err=True)
            except EOFError:
                typer.echo("It waits. `toolcrib approve` or `toolcrib chat --resume last` decides it later.")
                return

    def _say(self, text: str) -> None:
        self.unsent = text
        run = self._conversation.send(text)
        self.unsent = ""
        followed(self._conversation, run, self._narrator, self._decider)

    def _obey(self, said: str) -> None:
        command, _, rest = said.partition(" ")
        rest = rest.strip()
        match command:
            case "/undo":
                tell_changes(take_back(self._place, last_deed(self._place)), undone=True)
            case "/redo":
                tell_changes(take_back(self._place, last_undo(self._place)), undone=False)
            case "/agent":
                self._another_agent(rest)
            case "/trust":
                self._trust(rest)
            case "/new" | "/plan":
                self.begin(self._agent, mode="plan" if command == "/plan" else "build", trust=self._session.trust)
            case "/help":
                typer.echo(_HELP)
            case _:
                raise NotFound(f"There is no command {one_line(command, 40)}. /help lists them.")

    def _another_agent(self, name: str) -> None:
        if name:
            self.begin(chosen_agent(self._place, name), mode="build", trust=None)
            return
        for agent in self._place.client.agents(self._place.id):
            typer.echo(f"{'*' if agent.id == self._agent.id else ' '} {one_line(agent.name, 60)}  {_model(agent)}")

    def _trust(self, level: str) -> None:
        if not level:
            typer.echo(f"Trust is {self._session.trust or self._agent.rules['trust']}.")
            return
        if level not in list(Trust):
            raise NotFound(f"There is no trust {one_line(level, 40)!r}. There are: {', '.join(Trust)}.")
        changed = self._place.client.change_session(self._place.id, self._session.id, trust=level)
        self._conversation.session = changed
        typer.echo(f"Trust is {level} from the next message on.")

    @property
    def _session(self) -> Session:
        return self._conversation.session

    def _greet(self, session: Session) -> None:
        trust = session.trust or self._agent.rules["trust"]
        mode = ", plan mode" if session.mode == "plan" else ""
        typer.echo(f"{one_line(self._agent.name, 40)}, {_model(self._agent)}, {trust}{mode}")
        typer.echo(f"in {one_line(self._place.workspace.name, 74)}. /help lists commands.")


def _model(agent: Agent) -> str:
    return f"{one_line(agent.rules.get('provider') or 'no model', 40)}/{one_line(agent.rules.get('model') or '', 60)}"


def _line(prompt: str) -> str:
    """A line that was typed or piped; EOFError at the end. A pipe is not prompted."""
    if sys.stdin.isatty():
        return input(prompt)
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.rstrip("\n")


def _remember_lines(notes: Path | None) -> None:
    """Arrow keys and what was typed before, where the terminal can."""
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
