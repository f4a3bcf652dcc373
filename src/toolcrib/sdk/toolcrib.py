"""Toolcrib in a Python program: an agent on a directory, its tools, and undo."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, cast
from uuid import UUID

from toolcrib.client import AgentData, AuditRecordData, Client, RunData
from toolcrib.core.errors import Misconfigured
from toolcrib.sdk import undo_targets
from toolcrib.sdk.approval_callbacks import AnswerCallback, ApprovalCallbacks, ApproveCallback
from toolcrib.sdk.default_agent import defined_agent, resolve_agent
from toolcrib.sdk.run_events import Event, RunEventReader, RunResult, RunUnfinished
from toolcrib.sdk.session_client import SessionClient
from toolcrib.sdk.workspace_location import WorkspaceLocation, open_workspace_at

if TYPE_CHECKING:
    from toolcrib.tools.tool import Tool

TrustLevel = Literal["supervised", "guided", "autonomous"]


class Toolcrib:
    """A directory with an agent in it. Used as a context; one conversation, one run at a time.

    ``model`` is ``provider/model``; without it, what the environment offers is taken (``ANTHROPIC_API_KEY`` and its
    kin, as for the command line). ``approve`` is asked about every call that needs a person, ``answer`` about
    questions; without ``approve`` such calls are denied. ``tools`` are yours, made with ``@tool``; ``instructions``
    and ``trust`` shape the agent. ``agent`` names one that exists instead, and ``server`` a server elsewhere.
    """

    def __init__(
        self,
        directory: str | PathLike[str] = ".",
        *,
        model: str | None = None,
        approve: ApproveCallback | None = None,
        answer: AnswerCallback | None = None,
        tools: Iterable["Tool"] = (),
        instructions: str = "",
        trust: TrustLevel | None = None,
        agent: str | None = None,
        server: str | None = None,
        workspace: str | None = None,
    ) -> None:
        self._directory = Path(directory)
        self._model = model
        self._approve = approve
        self._answer = answer
        self._tools = tuple(tools)
        self._instructions = instructions
        self._trust = trust
        self._agent_name = agent
        self._server = server
        self._workspace = workspace
        self._opened = ExitStack()
        self._place: WorkspaceLocation | None = None
        self._conversation: SessionClient | None = None
        self._run: RunData | None = None
        self._is_shaped = bool(model or instructions or self._tools)
        if self._is_shaped and (agent is not None or server is not None):
            raise Misconfigured(
                "An agent that exists, or a server's, has its model, its instructions and its tools. Leave them out."
            )

    def __enter__(self) -> Self:
        self._place = self._opened.enter_context(
            open_workspace_at(self._directory, server=self._server, workspace=self._workspace, tools=self._tools)
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._place, self._conversation = None, None
        self._opened.__exit__(kind, error, trace)

    def run(self, prompt: str) -> RunResult:
        """Asks the agent, and returns when it has answered; Unfinished if it ended otherwise."""
        result = None
        for event in self.stream(prompt):
            result = event
        assert isinstance(result, RunResult)
        if not result.ok:
            raise RunUnfinished(result)
        return result

    def stream(self, prompt: str) -> Iterator[Event]:
        """Asks the agent, and tells what happens; the last event is the Result. Leaving it early stops the run."""
        conversation = self._conversation or self._begun(plan=False)
        answering = ApprovalCallbacks(self._there, approve=self._approve, answer=self._answer)
        run = self._run = conversation.send(prompt)
        ear, ended = RunEventReader(run), False
        try:
            for told in conversation.follow(run):
                for event in ear.hear(told):
                    ended = isinstance(event, RunResult)
                    yield event
                answering.see_to(told)
        finally:
            self._run = None
            if not ended:
                conversation.stop(run)

    def cancel(self) -> None:
        """Stops the run that goes on, if there is one. May be called from another thread."""
        if self._run is not None and self._conversation is not None:
            self._conversation.stop(self._run)

    def new_session(self, *, plan: bool = False) -> UUID:
        """Begins another conversation, in plan mode if wished: look, and propose. The first begins by itself."""
        return self._begun(plan=plan).id

    def resume(self, session_id: UUID) -> None:
        """Goes on with an earlier conversation: ``RunResult.session_id`` names it."""
        self._conversation = SessionClient(self._there, self.client.session(self._there.id, session_id))

    def call(self, tool: str, /, **arguments: Any) -> Any:
        """Calls a tool yourself, through the gate: ``crib.call("read", path="/notes.md")``."""
        return self._there.client.call(self._there.id, tool, arguments)

    def explain(self, tool: str, /, **arguments: Any) -> Mapping[str, Any]:
        """Which rule would decide if the agent made this call, and why: ``verdict``, ``rule``, ``reason`` …

        Once a conversation has begun, its mode, trust and grants count.
        """
        if self._conversation is not None:
            return self.client.explain(self._there.id, tool, arguments, session_id=self._conversation.id)
        return self.client.explain(self._there.id, tool, arguments, agent_id=self._agent().id)

    def undo(self, result: RunResult | None = None, *, dry_run: bool = False, force: bool = False) -> Mapping[str, Any]:
        """Takes back what a run did to files, or the last one that did something; tells changes and conflicts.

        Files that others have changed since are left alone, and are told as conflicts, unless ``force`` is set.
        """
        deed = (
            undo_targets.UndoTarget({"run_id": str(result.run_id)})
            if result
            else undo_targets.last_undo_target(self._there)
        )
        return undo_targets.run_undo(self._there, deed, dry_run=dry_run, force=force)

    def redo(self, *, dry_run: bool = False, force: bool = False) -> Mapping[str, Any]:
        """Does again what was undone last, if nothing was done since."""
        return undo_targets.run_undo(self._there, undo_targets.last_undo(self._there), dry_run=dry_run, force=force)

    def changes(self, result: RunResult) -> list[Mapping[str, Any]]:
        """What a run changed: ``path``, ``change``, ``diff`` …"""
        return cast(list[Mapping[str, Any]], self.call("changes", run_id=str(result.run_id))["changes"])

    def log(self, limit: int = 20) -> list[AuditRecordData]:
        """The newest records of the book: every call, by whom, allowed by whom, and what came of it."""
        return self._there.client.audit(self._there.id, limit=limit)

    @property
    def client(self) -> Client:
        """For everything else: the HTTP API, typed."""
        return self._there.client

    @property
    def workspace_id(self) -> UUID:
        return self._there.id

    @property
    def _there(self) -> WorkspaceLocation:
        if self._place is None:
            raise Misconfigured("A Toolcrib is opened before it is used: with Toolcrib(…) as crib: …")
        return self._place

    def _begun(self, *, plan: bool) -> SessionClient:
        place, mode = self._there, "plan" if plan else "build"
        session = place.client.create_session(place.id, agent_id=self._agent().id, mode=mode, trust=self._trust)
        self._conversation = SessionClient(place, session)
        return self._conversation

    def _agent(self) -> AgentData:
        if not self._is_shaped:
            return resolve_agent(self._there, self._agent_name)
        names = tuple(one.name for one in self._tools)
        return defined_agent(self._there, model=self._model, tools=names, prompt=self._instructions)
