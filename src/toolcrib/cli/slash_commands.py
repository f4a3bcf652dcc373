"""The slash commands of both chats.

A command returns lines to show and, if it changes the chat, the new session or agent. Each chat shows them its own way.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from rich.text import Text

from toolcrib.cli.log import author_names, diff_lines, diffs_of, newest_records, record_lines
from toolcrib.cli.message_context import SHOWN_TYPES, image_at
from toolcrib.cli.models import parse_model
from toolcrib.cli.review import NOTHING, review_lines
from toolcrib.cli.sessions import find_session
from toolcrib.cli.terminal_text import Line, age, change_lines, cost_text, one_line, short_id
from toolcrib.client import AgentOut, RunOut, SessionOut
from toolcrib.core.agents import TrustLevel
from toolcrib.core.errors import NotFound
from toolcrib.sdk.default_agent import resolve_agent, set_model
from toolcrib.sdk.workspace_location import WorkspaceLocation

_MAX_SESSIONS = 20
_MAX_RECORDS = 10
_MAX_COUNTED = 200


@dataclass(frozen=True, slots=True)
class SlashCommand:
    name: str
    takes: str
    does: str


COMMANDS = (
    SlashCommand("/undo", "", "undo the last run"),
    SlashCommand("/redo", "", "redo the last undo"),
    SlashCommand("/review", "", "look at the agent's changes, keep or revert them"),
    SlashCommand("/diff", "", "show the diff of the last call"),
    SlashCommand("/log", "", "show the history"),
    SlashCommand("/sessions", "", "list sessions"),
    SlashCommand("/resume", "[ID]", "continue an earlier session"),
    SlashCommand("/agent", "[NAME]", "list agents, or switch to another one"),
    SlashCommand("/model", "[MODEL]", "choose the model, or name it: provider/model"),
    SlashCommand("/trust", "[LEVEL]", "trust level: supervised, guided, review or autonomous"),
    SlashCommand("/image", "PATH", "attach an image or a PDF to your next message"),
    SlashCommand("/compact", "", "replace older messages by a summary, to free context"),
    SlashCommand("/cost", "", "show what the session has cost"),
    SlashCommand("/plan", "", "start a session in plan mode"),
    SlashCommand("/new", "", "start a session"),
    SlashCommand("/help", "", "list commands"),
    SlashCommand("/quit", "", "quit (Ctrl-D); pending approvals stay"),
)


@dataclass(frozen=True, slots=True)
class SlashReply:
    """The output of a command, and what it changes in the chat."""

    lines: tuple[Line, ...] = ()
    # The session to continue with, and its agent.
    session: SessionOut | None = None
    agent: AgentOut | None = None
    leave: bool = False
    # A run that was started, other than by a message.
    run: RunOut | None = None
    # An image or a PDF for the next message.
    attachment: str | Path | None = None
    # Executes what the lines preview.
    apply: "Callable[[], SlashReply] | None" = None


@dataclass(frozen=True, slots=True)
class SlashCommands:
    """Runs the commands for one session."""

    location: WorkspaceLocation
    session: SessionOut
    agent: AgentOut

    def run(self, text: str) -> SlashReply:
        """Runs a command line. Raises NotFound for an unknown command."""
        command, _, rest = text.partition(" ")
        rest = rest.strip()
        match command:
            case "/undo":
                return self._preview_undo("run")
            case "/redo":
                return self._preview_undo("undo")
            case "/review":
                shown = self.location.client.review(self.location.id, self.session.id, whole=True)
                return SlashReply(tuple(review_lines(shown)) if shown.total else (Text(NOTHING),))
            case "/diff":
                return self._diff()
            case "/log":
                return self._log()
            case "/sessions":
                return self._sessions()
            case "/resume":
                return self._resumed(rest or "last")
            case "/agent":
                return (
                    self._agents() if not rest else self._open_session(resolve_agent(self.location, rest), trust=None)
                )
            case "/model":
                return self._model(rest)
            case "/trust":
                return self._trust(rest)
            case "/image":
                return self._image(rest)
            case "/compact":
                return SlashReply(run=self.location.client.compact(self.location.id, self.session.id))
            case "/cost":
                return SlashReply(tuple(map(Text, self._cost_lines())))
            case "/new" | "/plan":
                mode = "plan" if command == "/plan" else "build"
                return self._open_session(self.agent, mode=mode, trust=self.session.trust)
            case "/help":
                return SlashReply(help_lines())
            case "/quit" | "/exit":
                return SlashReply(leave=True)
            case _:
                raise NotFound(f"There is no command {one_line(command, 40)}. /help lists them.")

    def _preview_undo(self, last: str) -> SlashReply:
        """Show what an undo would change. Applying it undoes exactly that, whatever has happened since."""
        found = self._undo({"last": last, "dry_run": True})
        undone = last != "undo"

        def apply() -> SlashReply:
            return SlashReply(tuple(change_lines(self._undo(found["undone"]), undone=undone)))

        return SlashReply(tuple(change_lines(found, undone=undone)), apply=apply)

    def _undo(self, arguments: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = self.location.client.call(self.location.id, "undo", arguments, on_output=lambda _: None)
        return found

    def _diff(self) -> SlashReply:
        changed = [record for record in newest_records(self.location, _MAX_RECORDS) if record.files]
        if not changed:
            raise NotFound("No call has changed a file yet.")
        return SlashReply(
            (
                *record_lines(changed[0], author_names(self.location, changed[:1])),
                *diff_lines(diffs_of(self.location, changed[0])),
            )
        )

    def _log(self) -> SlashReply:
        records = newest_records(self.location, _MAX_RECORDS)
        names = author_names(self.location, records)
        lines = [line for record in reversed(records) for line in record_lines(record, names)]
        return SlashReply(tuple(lines) or (Text("No tool calls yet."),))

    def _sessions(self) -> SlashReply:
        found = self.location.client.sessions(self.location.id, limit=_MAX_SESSIONS)
        lines = [Text(session_line(one, here=one.id == self.session.id)) for one in found]
        return SlashReply((*lines, Text("/resume ID continues a session.", style="dim")))

    def _resumed(self, text: str) -> SlashReply:
        others = [one for one in self.location.client.sessions(self.location.id) if one.id != self.session.id]
        if text == "last" and not others:
            raise NotFound("There is no earlier session.")
        found = others[0] if text == "last" else find_session(self.location, text)
        return SlashReply(session=found, agent=resolve_agent(self.location, str(found.agent_id)))

    def _agents(self) -> SlashReply:
        agents = self.location.client.agents(self.location.id)
        return SlashReply(
            tuple(
                Text(f"{'*' if one.id == self.agent.id else ' '} {one_line(one.name, 60)}  {model_of(one)}")
                for one in agents
            )
        )

    def _open_session(self, agent: AgentOut, *, mode: str = "build", trust: str | None) -> SlashReply:
        location = self.location
        session = location.client.create_session(
            location.id, agent_id=agent.id, mode=mode, trust=trust, directory=location.directory
        )
        return SlashReply(session=session, agent=agent)

    def _model(self, text: str) -> SlashReply:
        if not text:
            return SlashReply((Text(model_of(self.agent)), Text("`toolcrib models` lists all models.", style="dim")))
        changed = set_model(self.location, self.agent, parse_model(text))
        return SlashReply((Text(f"{one_line(changed.name, 40)} now uses {model_of(changed)}."),), agent=changed)

    def _image(self, text: str) -> SlashReply:
        found = image_at(self.location, text) if text else None
        if found is None:
            known = ", ".join(SHOWN_TYPES)
            raise NotFound(f"{one_line(text, 100)!r} is no image or PDF ({known}). Usage: /image PATH")
        return SlashReply((Text(f"Attached to your next message: {one_line(str(found), 100)}"),), attachment=found)

    def _cost_lines(self) -> list[str]:
        runs = self.location.client.runs(self.location.id, self.session.id, limit=_MAX_COUNTED)
        known = [one.cost for one in runs if one.cost is not None]
        unpriced = sum(one.unpriced_turns for one in runs)
        cost = cost_text(sum(known, Decimal(0)) if known or not unpriced else None, unpriced)
        used = f"{sum(one.input_tokens for one in runs):,} in, {sum(one.output_tokens for one in runs):,} out"
        which = f"the last {_MAX_COUNTED} messages" if len(runs) == _MAX_COUNTED else "this session"
        return [f"Cost of {which}: {cost}", f"Tokens: {used}", f"Model: {model_of(self.agent)}"]

    def _trust(self, level: str) -> SlashReply:
        if not level:
            most = f", at most {self.agent.max_trust}" if self.agent.max_trust else ""
            return SlashReply((Text(f"Trust is {trust_of(self.session, self.agent)}{most}."),))
        if level not in list(TrustLevel):
            raise NotFound(f"There is no trust level {one_line(level, 40)!r}. Trust levels: {', '.join(TrustLevel)}.")
        changed = self.location.client.change_session(self.location.id, self.session.id, trust=level)
        return SlashReply((Text(f"Trust is {level} from the next message on."),), session=changed)


def help_lines(commands: Sequence[SlashCommand] = COMMANDS) -> tuple[Text, ...]:
    return tuple(Text.assemble((f"{f'{one.name} {one.takes}'.strip():<18}", "bold"), one.does) for one in commands)


def completions(typed: str) -> list[SlashCommand]:
    """Returns the commands that start with the typed text."""
    if not typed.startswith("/") or " " in typed or "\n" in typed:
        return []
    return [one for one in COMMANDS if one.name.startswith(typed)]


def session_line(session: SessionOut, *, here: bool) -> str:
    mark, title = "*" if here else " ", one_line(session.title or "", 60)
    return f"{mark} {short_id(session.id)}  {age(session.created_at):>6}  {session.mode:<5}  {title}".rstrip()


def model_of(agent: AgentOut) -> str:
    return f"{one_line(agent.rules.provider or 'no model', 40)}/{one_line(agent.rules.model or '', 60)}"


def trust_of(session: SessionOut, agent: AgentOut) -> str:
    return session.trust or agent.rules.trust
