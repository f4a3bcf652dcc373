"""Toolcrib in a Python program: an agent on a directory, its tools, and undo."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, cast
from uuid import UUID

from toolcrib.client import AgentOut, AuditRecordOut, Client, RunOut
from toolcrib.core import agents
from toolcrib.core.errors import Misconfigured
from toolcrib.sdk.approval_callbacks import AnswerCallback, ApprovalCallbacks, ApproveCallback
from toolcrib.sdk.default_agent import defined_agent, resolve_agent
from toolcrib.sdk.run_events import Event, RunEventReader, RunResult, RunUnfinished
from toolcrib.sdk.session_client import Attached, SessionClient
from toolcrib.sdk.session_review import SessionReview
from toolcrib.sdk.workspace_location import WorkspaceLocation, open_workspace_at

if TYPE_CHECKING:
    from toolcrib.tools.tool import Tool

TrustLevel = Literal["supervised", "guided", "review", "autonomous"]


class Toolcrib:
    """An agent on a directory. Use it as a context manager; it has one session and one run at a time.

    - ``directory``: The workspace.
    - ``model``: ``provider/model``. Without it the environment decides (``ANTHROPIC_API_KEY`` and others, as for the
      CLI).
    - ``approve``: Called for every call that needs a decision. Without it such calls are rejected. With it, and without
      ``trust`` and ``agent``, the trust is at most ``guided``: so it is called for every change.
    - ``answer``: Called for the agent's questions.
    - ``tools``: Your own tools, made with ``@tool``.
    - ``instructions``, ``trust``: The agent's system prompt and its trust level. By default it is ``review``: changes
      that can be undone are applied.
    - ``agent``: The name of an existing agent to use instead.
    - ``server``, ``workspace``: The URL of a server to use instead of this process, and the name of a workspace there.
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
        self._location: WorkspaceLocation | None = None
        self._conversation: SessionClient | None = None
        self._run: RunOut | None = None
        self._is_shaped = bool(model or instructions or self._tools)
        if self._is_shaped and (agent is not None or server is not None):
            raise Misconfigured("An existing agent has its own model, instructions and tools. Leave them out.")

    def __enter__(self) -> Self:
        self._location = self._opened.enter_context(
            open_workspace_at(self._directory, server=self._server, workspace=self._workspace, tools=self._tools)
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._location, self._conversation = None, None
        self._opened.__exit__(kind, error, trace)

    def run(self, prompt: str, *, priority: int | None = None, attachments: Sequence[Attached] = ()) -> RunResult:
        """Send a prompt to the agent and return its answer.

        Args:
            attachments: Images and PDFs that the model sees: a ``Path`` of this computer, ``bytes``, or a ``str``,
                which is a path of the workspace.
            priority: From 0 to 1000, by default 100. Lower ones start first while runs of the workspace wait.

        Raises:
            RunUnfinished: The run ended without an answer.
        """
        result = None
        for event in self.stream(prompt, priority=priority, attachments=attachments):
            result = event
        assert isinstance(result, RunResult)
        if not result.ok:
            raise RunUnfinished(result)
        return result

    def stream(
        self, prompt: str, *, priority: int | None = None, attachments: Sequence[Attached] = ()
    ) -> Iterator[Event]:
        """Send a prompt to the agent and yield the run's events; the last one is a ``RunResult``.

        Leaving the iteration early cancels the run.
        """
        conversation = self._conversation or self._begun(plan=False)
        answering = ApprovalCallbacks(self._there, approve=self._approve, answer=self._answer)
        run = self._run = conversation.send(prompt, priority=priority, attachments=attachments)
        ear, ended = RunEventReader(run), False
        try:
            for message in conversation.follow(run):
                for event in ear.handle(message):
                    ended = isinstance(event, RunResult)
                    yield event
                answering.handle(message)
        finally:
            self._run = None
            if not ended:
                conversation.stop(run)

    def cancel(self) -> None:
        """Cancel the current run, if there is one. May be called from another thread."""
        if self._run is not None and self._conversation is not None:
            self._conversation.stop(self._run)

    def new_session(self, *, plan: bool = False) -> UUID:
        """Start a new session, optionally in plan mode: read and propose only. The first one starts automatically.

        Returns:
            The id of the session.
        """
        return self._begun(plan=plan).id

    def resume(self, session_id: UUID) -> None:
        """Continue an earlier session; ``RunResult.session_id`` is its id."""
        self._conversation = SessionClient(self._there, self.client.session(self._there.id, session_id))

    def call(self, tool: str, /, **arguments: Any) -> Any:
        """Call a tool yourself, through the gate: ``crib.call("read", path="/notes.md")``.

        You act by your own role. For a model of your own, call as the agent of a session, by its rules:
        ``crib.client.call(crib.workspace_id, "read", {"path": "/notes.md"}, session_id=crib.new_session())``.
        """
        return self._there.client.call(self._there.id, tool, arguments)

    def explain(self, tool: str, /, **arguments: Any) -> Mapping[str, Any]:
        """Return which rule would decide if the agent made this call, and why: ``action``, ``rule``, ``reason`` …

        Once a session has started, its mode, trust and grants apply. A session with its own trust is started for this.
        """
        if self._conversation is None:
            agent = self._agent()
            if self._session_trust(agent) is None:
                return self.client.explain(self._there.id, tool, arguments, agent_id=agent.id)
        conversation = self._conversation or self._begun(plan=False)
        return self.client.explain(self._there.id, tool, arguments, session_id=conversation.id)

    def undo(self, result: RunResult | None = None, *, dry_run: bool = False, force: bool = False) -> Mapping[str, Any]:
        """Undo the file changes of a run; by default of the last run that changed something.

        Args:
            result: The run to undo.
            dry_run: Only return what undoing would do.
            force: Also undo files that others have changed since. Otherwise these stay, and are returned as conflicts.

        Returns:
            The changes and the conflicts.
        """
        target = {"run_id": str(result.run_id)} if result else {"last": "run"}
        return self._undo(target, dry_run=dry_run, force=force)

    def redo(self, *, dry_run: bool = False, force: bool = False) -> Mapping[str, Any]:
        """Redo the last undo, if nothing has changed since."""
        return self._undo({"last": "undo"}, dry_run=dry_run, force=force)

    def _undo(self, target: Mapping[str, str], *, dry_run: bool, force: bool) -> Mapping[str, Any]:
        arguments = {**target, "dry_run": dry_run, "force": force}
        # With its output, which nobody reads here, the call may take any time.
        return cast(
            Mapping[str, Any],
            self._there.client.call(self._there.id, "undo", arguments, on_output=lambda _: None),
        )

    def changes(self, result: RunResult) -> list[Mapping[str, Any]]:
        """Return what a run changed: ``path``, ``change``, ``diff`` …"""
        return cast(list[Mapping[str, Any]], self.call("changes", run_id=str(result.run_id))["changes"])

    def review(self) -> SessionReview:
        """Return what the agent changed in this session since the last review, to keep or revert it.

        Usually after a run with ``trust="review"``. The agent learns with the next prompt what was reverted.
        """
        if self._conversation is None:
            raise Misconfigured("There is no session yet. Run something first, or resume a session.")
        shown = self.client.review(self._there.id, self._conversation.id, whole=True)
        return SessionReview(self.client, self._there.id, shown)

    def log(self, limit: int = 20) -> list[AuditRecordOut]:
        """Return the newest audit records: every call, its caller, its approver and its outcome."""
        return self._there.client.audit(self._there.id, limit=limit)

    @property
    def client(self) -> Client:
        """The typed client of the HTTP API, for everything else."""
        return self._there.client

    @property
    def workspace_id(self) -> UUID:
        """The id of the workspace."""
        return self._there.id

    @property
    def _there(self) -> WorkspaceLocation:
        if self._location is None:
            raise Misconfigured("Open it before use: with Toolcrib(…) as crib: …")
        return self._location

    def _begun(self, *, plan: bool) -> SessionClient:
        location, mode = self._there, "plan" if plan else "build"
        agent = self._agent()
        trust = self._session_trust(agent)
        session = location.client.create_session(location.id, agent_id=agent.id, mode=mode, trust=trust)
        self._conversation = SessionClient(location, session)
        return self._conversation

    def _session_trust(self, agent: AgentOut) -> str | None:
        """Return the trust of a new session. A program with a callback for approvals decides every change."""
        if self._trust is not None or self._approve is None or self._agent_name is not None:
            return self._trust
        return agent.rules.trust.capped(agents.TrustLevel.GUIDED)

    def _agent(self) -> AgentOut:
        if not self._is_shaped:
            return resolve_agent(self._there, self._agent_name)
        names = tuple(one.name for one in self._tools)
        return defined_agent(self._there, model=self._model, tools=names, prompt=self._instructions)
