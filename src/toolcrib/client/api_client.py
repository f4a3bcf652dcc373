"""The client of the HTTP API. An error response is raised as the error that the server reported."""

from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Self
from uuid import UUID

from toolcrib.client.http_client import HttpClient, MessageStream, StreamHandle, Token
from toolcrib.client.review_pages import require_all_shown, whole_approval, with_more_files, with_more_lines
from toolcrib.core.errors import Conflict
from toolcrib.schemas.accounts import ApiKeyCreatedOut, ApiKeyOut, UserOut
from toolcrib.schemas.agents import AgentOut, PackageOut
from toolcrib.schemas.audit import AuditRecordOut, AuditVerificationOut
from toolcrib.schemas.mcp_servers import McpServerOut
from toolcrib.schemas.models import ModelOut, ProviderCredentialsOut
from toolcrib.schemas.paused_calls import (
    ApprovalOut,
    ChangesPageOut,
    GrantRuleOut,
    PausedCallOut,
    QuestionPauseOut,
    decision_on,
    parse_paused_call,
)
from toolcrib.schemas.reviews import FileDecisionIn, ReviewDecisionIn, ReviewDecisionOut, ReviewFileOut, ReviewOut
from toolcrib.schemas.schedules import ScheduleOut
from toolcrib.schemas.sessions import AttachedFile, CostOut, EventOut, MessageOut, RunOut, SessionOut, StreamMessage
from toolcrib.schemas.tool_calls import StoredCallOut
from toolcrib.schemas.workspaces import BudgetOut, WorkspaceOut


class Client:
    """A client for one server, with one access token or API key. Use it as a context manager.

    Every method raises ``ServerUnreachable`` if there is no answer, ``ServerUnavailable`` if the server cannot serve
    now, and otherwise the server's error: ``NotFound``, ``Forbidden``, ``Conflict``, ``BadArguments`` or another
    ``ToolcribError``.
    """

    def __init__(self, server: str, token: Token, *, seconds: float = 30) -> None:
        self._http = HttpClient(server, token, seconds=seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    def workspaces(self) -> list[WorkspaceOut]:
        """Return the workspaces that you are a member of."""
        return [WorkspaceOut.model_validate(item) for item in self._http.all("/workspaces", page_by="before")]

    def rename_workspace(self, workspace_id: UUID, name: str) -> WorkspaceOut:
        """Change a workspace's name."""
        return self._http.fetch(WorkspaceOut, "PATCH", f"/workspaces/{workspace_id}", {"name": name})

    def limit_trust(self, workspace_id: UUID, max_trust: str | None) -> WorkspaceOut:
        """Set the highest trust of any session there; None removes the limit."""
        return self._http.fetch(WorkspaceOut, "PATCH", f"/workspaces/{workspace_id}", {"max_trust": max_trust})

    def set_budgets(self, workspace_id: UUID, budgets: Mapping[str, Any] | None) -> WorkspaceOut:
        """Set what models may use there per `session`, `day` and `month`. None for a period removes its budget."""
        return self._http.fetch(WorkspaceOut, "PATCH", f"/workspaces/{workspace_id}", {"budgets": budgets})

    def budgets(self, workspace_id: UUID) -> list[BudgetOut]:
        """Return the budgets of a workspace and its agents, with what is used of them."""
        return self._http.page(BudgetOut, f"/workspaces/{workspace_id}/budgets")

    def delete_workspace(self, workspace_id: UUID) -> None:
        """Delete a workspace with its history and agents. Files in a user's own directory stay."""
        self._http.send("DELETE", f"/workspaces/{workspace_id}")

    def tools(self, workspace_id: UUID) -> list[dict[str, Any]]:
        """Return the tools that you may use: ``name``, ``description``, ``inputSchema``."""
        found: list[dict[str, Any]] = self._http.send("GET", f"/workspaces/{workspace_id}/tools")
        return found

    def call(
        self,
        workspace_id: UUID,
        tool: str,
        args: Mapping[str, Any],
        *,
        session_id: UUID | None = None,
        as_person: bool = False,
        on_output: Callable[[str], None] | None = None,
        handle: StreamHandle | None = None,
    ) -> Any:
        """Call a tool.

        Args:
            session_id: The session of the call. If it has an agent, the agent calls for you: by its rules.
            as_person: Call as yourself also in the session of an agent.
            on_output: Receives what the tool shows while it runs. With it, the call may take any time.
            handle: Closing it, in any thread, cancels a call with ``on_output``.

        Returns:
            The tool's result; for a call that waits, what it waits for.
        """
        path = f"/workspaces/{workspace_id}/tools"
        body: dict[str, Any] = {"tool": tool, "args": dict(args)}
        if session_id is not None:
            body |= {"session_id": str(session_id), "as_person": as_person}
        if on_output is not None:
            return self._http.send_streamed(path, body, on_output, handle)["result"]
        return self._http.send("POST", path, body)["result"]

    def explain(
        self,
        workspace_id: UUID,
        tool: str,
        args: Mapping[str, Any],
        *,
        agent_id: UUID | None = None,
        session_id: UUID | None = None,
    ) -> dict[str, Any]:
        """Return which rule would decide a call, and why: as yourself, as an agent, or as the agent of a session."""
        named = {"agent_id": agent_id, "session_id": session_id}
        body = {"tool": tool, "args": dict(args)} | {name: str(one) for name, one in named.items() if one}
        found: dict[str, Any] = self._http.send("POST", f"/workspaces/{workspace_id}/explain", body)
        return found

    def call_result(self, workspace_id: UUID, call_id: UUID) -> StoredCallOut:
        """Return a stored call with its full result."""
        return self._http.fetch(StoredCallOut, "GET", f"/workspaces/{workspace_id}/calls/{call_id}")

    def paused_calls(
        self, workspace_id: UUID, *, kind: Literal["approval", "question"] | None = None
    ) -> list[PausedCallOut]:
        """Return the calls that wait for a person, oldest first."""
        found = self._http.all(f"/workspaces/{workspace_id}/paused-calls", page_by="after", kind=kind)
        return [parse_paused_call(item) for item in found]

    def paused_call(self, workspace_id: UUID, pause_id: UUID) -> PausedCallOut:
        """Return one paused call in any state."""
        return parse_paused_call(self._http.send("GET", f"/workspaces/{workspace_id}/paused-calls/{pause_id}"))

    def whole_approval(self, workspace_id: UUID, approval: ApprovalOut) -> ApprovalOut:
        """Return a pending approval with the lines of all its changes, however many: it has only the first ones itself.

        Changes that cannot be shown say why. Nothing is loaded if no lines are missing.

        Raises:
            Conflict: The approval was decided meanwhile.
        """
        path = f"/workspaces/{workspace_id}/paused-calls/{approval.id}/changes"

        def page_of(first: int, from_line: int) -> ChangesPageOut:
            return self._http.fetch(ChangesPageOut, "GET", path, query={"first": first, "from_line": from_line})

        return whole_approval(approval, page_of)

    def decide(
        self,
        workspace_id: UUID,
        approval: ApprovalOut,
        *,
        approved: bool,
        scope: str = "once",
        reason: str | None = None,
        rule: GrantRuleOut | None = None,
    ) -> ApprovalOut:
        """Approve or reject a call. Its hash is sent along, so that the decision is valid only for what it shows.

        Args:
            scope: ``once``, ``session`` or ``always``.
            reason: Why the call was rejected; the agent receives it.
            rule: The grant to store for a scope beyond ``once``; by default the suggested one.
        """
        body = decision_on(approval, approved=approved, scope=scope, reason=reason, rule=rule).model_dump(mode="json")
        path = f"/workspaces/{workspace_id}/paused-calls/{approval.id}/decision"
        return self._http.fetch(ApprovalOut, "POST", path, body)

    def review(
        self,
        workspace_id: UUID,
        session_id: UUID,
        *,
        path: str | None = None,
        from_line: int = 0,
        offset: int = 0,
        whole: bool = False,
    ) -> ReviewOut:
        """Return what the session's agent changed since the last review: a thousand files, and the first of many lines.

        Args:
            path: Only this file, with more lines.
            from_line: With ``path``: the first line, which is the ``next_line`` of the file.
            offset: The first file, which is the ``next_offset`` of the page before.
            whole: With all files and all lines.

        Raises:
            Conflict: A file changed while its pages were loaded.
        """
        address = f"/workspaces/{workspace_id}/sessions/{session_id}/review"
        query = {"path": path, "from_line": from_line or None, "offset": offset or None}
        shown = self._http.fetch(ReviewOut, "GET", address, query=query)
        if not whole:
            return shown
        while shown.next_offset is not None:
            shown = with_more_files(shown, self.review(workspace_id, session_id, offset=shown.next_offset))
        complete = [self._with_all_lines(workspace_id, session_id, one) for one in shown.files]
        return shown.model_copy(update={"files": complete})

    def _with_all_lines(self, workspace_id: UUID, session_id: UUID, file: ReviewFileOut) -> ReviewFileOut:
        while file.next_line is not None and file.flaw is None:
            page = self.review(workspace_id, session_id, path=file.path, from_line=file.next_line)
            if not page.files:
                raise Conflict(f"{file.path} was decided about while it was loaded. Look at the review again.")
            file = with_more_lines(file, page.files[0])
        return file

    def decide_review(
        self,
        workspace_id: UUID,
        review: ReviewOut,
        decisions: Sequence[FileDecisionIn] = (),
        *,
        everything: Literal["keep", "revert"] | None = None,
    ) -> ReviewDecisionOut:
        """Keep or revert files of a review, or everything in it. Valid only for what the review shows.

        Raises:
            Conflict: Everything is to be kept, and some of it could not be shown or is not listed.
        """
        if everything == "keep":
            require_all_shown(review)
        given = (
            ReviewDecisionIn(decisions=list(decisions))
            if everything is None
            else ReviewDecisionIn(
                all=everything, version=review.version, unshown=review.unshown, left_out=review.left_out
            )
        )
        path = f"/workspaces/{workspace_id}/sessions/{review.session_id}/review"
        return self._http.fetch(ReviewDecisionOut, "POST", path, given.model_dump(mode="json"))

    def answer(
        self,
        workspace_id: UUID,
        pause_id: UUID,
        answers: Mapping[str, Any],
        *,
        buttons: Sequence[str] = (),
    ) -> QuestionPauseOut:
        """Answer a call's questions.

        Args:
            answers: One answer per question, by name.
            buttons: The names of the questions that were answered with a button.
        """
        body = {"answers": dict(answers), "answered_with_button": list(buttons)}
        path = f"/workspaces/{workspace_id}/paused-calls/{pause_id}/answers"
        return self._http.fetch(QuestionPauseOut, "POST", path, body)

    def cancel_call(self, workspace_id: UUID, call_id: UUID) -> PausedCallOut:
        """Cancel a call that waits for a person."""
        return parse_paused_call(self._http.send("POST", f"/workspaces/{workspace_id}/calls/{call_id}/cancel"))

    # Agents, sessions and runs

    def agents(self, workspace_id: UUID) -> list[AgentOut]:
        """Return the agents of a workspace."""
        return self._http.page(AgentOut, f"/workspaces/{workspace_id}/agents")

    def create_agent(self, workspace_id: UUID, *, name: str, definition: str) -> AgentOut:
        """Create an agent from its YAML definition."""
        body = {"name": name, "definition": definition}
        return self._http.fetch(AgentOut, "POST", f"/workspaces/{workspace_id}/agents", body)

    def change_agent(self, workspace_id: UUID, agent_id: UUID, *, definition: str) -> AgentOut:
        """Change an agent's definition."""
        path = f"/workspaces/{workspace_id}/agents/{agent_id}"
        return self._http.fetch(AgentOut, "PATCH", path, {"definition": definition})

    def delete_agent(self, workspace_id: UUID, agent_id: UUID) -> None:
        """Delete an agent."""
        self._http.send("DELETE", f"/workspaces/{workspace_id}/agents/{agent_id}")

    def mcp_servers(self, workspace_id: UUID) -> list[McpServerOut]:
        """Return the MCP servers of a workspace."""
        return self._http.page(McpServerOut, f"/workspaces/{workspace_id}/mcp-servers")

    def create_mcp_server(self, workspace_id: UUID, *, name: str, **how: Any) -> McpServerOut:
        """Add an MCP server: ``command`` or ``url``, and optionally ``secrets`` and ``safe_tools``. Owners only.

        A ``command`` may have ``hosts`` and ``workspace_access``.
        """
        return self._http.fetch(McpServerOut, "POST", f"/workspaces/{workspace_id}/mcp-servers", {"name": name, **how})

    def update_mcp_server(self, workspace_id: UUID, server_id: UUID, **changes: Any) -> McpServerOut:
        """Change ``enabled``, ``secrets``, ``hosts``, ``workspace_access`` or ``safe_tools``. Owners only."""
        return self._http.fetch(McpServerOut, "PATCH", f"/workspaces/{workspace_id}/mcp-servers/{server_id}", changes)

    def refresh_mcp_server(self, workspace_id: UUID, server_id: UUID) -> McpServerOut:
        """Connect to an MCP server and list its tools again. Owners only."""
        return self._http.fetch(McpServerOut, "POST", f"/workspaces/{workspace_id}/mcp-servers/{server_id}/refresh")

    def approve_mcp_server(self, workspace_id: UUID, server_id: UUID, *, sha256: str) -> McpServerOut:
        """Approve the latest tool list if it has this hash. Owners only."""
        path = f"/workspaces/{workspace_id}/mcp-servers/{server_id}/approve"
        return self._http.fetch(McpServerOut, "POST", path, {"sha256": sha256})

    def delete_mcp_server(self, workspace_id: UUID, server_id: UUID) -> None:
        """Delete an MCP server."""
        self._http.send("DELETE", f"/workspaces/{workspace_id}/mcp-servers/{server_id}")

    def packages(self, workspace_id: UUID) -> list[PackageOut]:
        """Return the packages of a workspace."""
        return self._http.page(PackageOut, f"/workspaces/{workspace_id}/packages")

    def install_package(self, workspace_id: UUID, archive: bytes) -> PackageOut:
        """Install a package from a zip, tar or tar.gz. Owners only."""
        return self._http.fetch(PackageOut, "POST", f"/workspaces/{workspace_id}/packages", content=archive)

    def remove_package(self, workspace_id: UUID, name: str) -> None:
        """Remove a package."""
        self._http.send("DELETE", f"/workspaces/{workspace_id}/packages/{name}")

    def schedules(self, workspace_id: UUID) -> list[ScheduleOut]:
        """Return the schedules of a workspace."""
        return self._http.page(ScheduleOut, f"/workspaces/{workspace_id}/schedules")

    def create_schedule(
        self, workspace_id: UUID, *, name: str, cron: str, time_zone: str, agent_id: UUID, message: str
    ) -> ScheduleOut:
        """Create a schedule that sends a message as you."""
        body = {"name": name, "cron": cron, "time_zone": time_zone, "agent_id": str(agent_id), "message": message}
        return self._http.fetch(ScheduleOut, "POST", f"/workspaces/{workspace_id}/schedules", body)

    def change_schedule(self, workspace_id: UUID, schedule_id: UUID, **changes: Any) -> ScheduleOut:
        """Change a schedule: ``name``, ``cron``, ``time_zone``, ``agent_id``, ``message`` or ``enabled``."""
        path = f"/workspaces/{workspace_id}/schedules/{schedule_id}"
        return self._http.fetch(ScheduleOut, "PATCH", path, changes)

    def run_schedule(self, workspace_id: UUID, schedule_id: UUID) -> RunOut:
        """Send a schedule's message now."""
        return self._http.fetch(RunOut, "POST", f"/workspaces/{workspace_id}/schedules/{schedule_id}/run")

    def delete_schedule(self, workspace_id: UUID, schedule_id: UUID) -> None:
        """Delete a schedule."""
        self._http.send("DELETE", f"/workspaces/{workspace_id}/schedules/{schedule_id}")

    def sessions(self, workspace_id: UUID, *, limit: int = 50) -> list[SessionOut]:
        """Return the sessions, newest first."""
        return self._http.page(SessionOut, f"/workspaces/{workspace_id}/sessions", limit=limit)

    def session(self, workspace_id: UUID, session_id: UUID) -> SessionOut:
        """Return one session."""
        return self._http.fetch(SessionOut, "GET", f"/workspaces/{workspace_id}/sessions/{session_id}")

    def create_session(
        self,
        workspace_id: UUID,
        *,
        agent_id: UUID,
        title: str | None = None,
        mode: str = "build",
        trust: str | None,
        package: str | None = None,
        directory: str = "",
    ) -> SessionOut:
        """Create a session. With ``package`` it runs that package's workflow. Commands start in ``directory``."""
        body = {"agent_id": str(agent_id), "title": title, "mode": mode, "trust": trust, "package": package}
        if directory:
            body["directory"] = directory
        return self._http.fetch(SessionOut, "POST", f"/workspaces/{workspace_id}/sessions", body)

    def change_session(self, workspace_id: UUID, session_id: UUID, **changes: Any) -> SessionOut:
        """Change a session: ``title``, ``trust``, ``phase``."""
        return self._http.fetch(SessionOut, "PATCH", f"/workspaces/{workspace_id}/sessions/{session_id}", changes)

    def send(
        self,
        workspace_id: UUID,
        session_id: UUID,
        text: str,
        *,
        priority: int | None = None,
        attachments: Sequence[str | AttachedFile] = (),
    ) -> RunOut:
        """Send a message to the session's agent and return the run that answers it.

        Args:
            attachments: Images and PDFs that the model sees: paths of the workspace, or files with their content.
        """
        path = f"/workspaces/{workspace_id}/sessions/{session_id}/messages"
        body: dict[str, Any] = {"text": text} | ({} if priority is None else {"priority": priority})
        if attachments:
            body["attachments"] = [one if isinstance(one, str) else one.model_dump() for one in attachments]
        return self._http.fetch(RunOut, "POST", path, body)

    def compact(self, workspace_id: UUID, session_id: UUID) -> RunOut:
        """Replace the older messages of a session by a summary. Returns the run that does it."""
        return self._http.fetch(RunOut, "POST", f"/workspaces/{workspace_id}/sessions/{session_id}/compact")

    def messages(self, workspace_id: UUID, session_id: UUID) -> list[MessageOut]:
        """Return all messages of a session."""
        found = self._http.all(f"/workspaces/{workspace_id}/sessions/{session_id}/messages", page_by="after")
        return [MessageOut.model_validate(item) for item in found]

    def runs(
        self, workspace_id: UUID, session_id: UUID | None = None, *, state: str | None = None, limit: int = 50
    ) -> list[RunOut]:
        """Return the runs of a session, or of the whole workspace, newest first. With ``state``, only those in it."""
        query = {"session_id": session_id, "state": state, "limit": limit}
        return self._http.page(RunOut, f"/workspaces/{workspace_id}/runs", **query)

    def run(self, workspace_id: UUID, run_id: UUID) -> RunOut:
        """Return one run."""
        return self._http.fetch(RunOut, "GET", f"/workspaces/{workspace_id}/runs/{run_id}")

    def costs(self, workspace_id: UUID, *, by: str = "day", days: int = 30) -> list[CostOut]:
        """Return the workspace's tokens and costs, added up by `day`, `agent`, `model` or `session`."""
        return self._http.page(CostOut, f"/workspaces/{workspace_id}/costs", by=by, days=days)

    def retry(self, workspace_id: UUID, run_id: UUID) -> RunOut:
        """Send the message of a run again that failed, was cancelled or used up a budget. Returns the new run."""
        return self._http.fetch(RunOut, "POST", f"/workspaces/{workspace_id}/runs/{run_id}/retry")

    def cancel(self, workspace_id: UUID, run_id: UUID) -> RunOut:
        """Cancel a run. Messages queued behind a run that had started are held."""
        return self._http.fetch(RunOut, "POST", f"/workspaces/{workspace_id}/runs/{run_id}/cancel")

    def release(self, workspace_id: UUID, run_id: UUID) -> RunOut:
        """Release a queued message that a stop held."""
        return self._http.fetch(RunOut, "POST", f"/workspaces/{workspace_id}/runs/{run_id}/release")

    def events(
        self, workspace_id: UUID, session_id: UUID, *, after: int = 0, limit: int = 1_000
    ) -> list[StreamMessage]:
        """Return up to ``limit`` events after an event number."""
        path = f"/workspaces/{workspace_id}/sessions/{session_id}/events"
        found = self._http.page(EventOut, path, after=after, limit=limit)
        return [StreamMessage(type=f"chat:{one.type}", payload=one.payload, seq=one.seq) for one in found]

    def stream_events(self, workspace_id: UUID, session_id: UUID, *, after: int) -> MessageStream[StreamMessage]:
        """Stream the events after an event number, then new ones, until the server ends the stream.

        Resume after the last.
        """
        path = f"/workspaces/{workspace_id}/sessions/{session_id}/events/stream"
        return self._http.stream(StreamMessage, path, after=after)

    # Models, keys, users, the audit log

    def provider_credentials(self, kind: str = "models") -> list[ProviderCredentialsOut]:
        """Return the providers for which you stored credentials; with ``search``, the search engines."""
        return [one for one in self._http.page(ProviderCredentialsOut, "/credentials") if one.kind == kind]

    def store_access(self, provider: str, *, secret: str, base_url: str | None = None, check: bool = True) -> None:
        """Store your credentials for a provider. With ``check`` the provider must accept them."""
        body = {"secret": secret, "base_url": base_url, "check": check}
        self._http.send("PUT", f"/credentials/{provider}", body)

    def remove_access(self, provider: str) -> None:
        """Delete your credentials for a provider."""
        self._http.send("DELETE", f"/credentials/{provider}")

    def limit_requests(self, provider: str, *, at_once: int | None = None, per_minute: int | None = None) -> None:
        """Limit the model requests with your credentials for a provider. None: any number."""
        body = {"at_once": at_once, "per_minute": per_minute}
        self._http.send("PUT", f"/credentials/{provider}/limits", body)

    def models(self, provider: str) -> list[ModelOut]:
        """Return the models of a provider that you may use."""
        return self._http.page(ModelOut, f"/providers/{provider}/models")

    def keys(self) -> list[ApiKeyOut]:
        """Return your API keys."""
        return self._http.page(ApiKeyOut, "/api-keys")

    def create_key(self, *, name: str, days: int | None = None) -> tuple[ApiKeyOut, str]:
        """Create an API key. Returns the key and its secret, which is shown only once."""
        made = self._http.fetch(ApiKeyCreatedOut, "POST", "/api-keys", {"name": name, "expires_in_days": days})
        return made.key, made.secret

    def revoke_key(self, key_id: UUID) -> None:
        """Revoke an API key."""
        self._http.send("DELETE", f"/api-keys/{key_id}")

    def me(self) -> UserOut:
        """Return your own account."""
        return self._http.fetch(UserOut, "GET", "/auth/me")

    def audit(self, workspace_id: UUID, *, limit: int = 100, before: int | None = None) -> list[AuditRecordOut]:
        """Return the audit records, newest first. Owners only."""
        return self._http.page(AuditRecordOut, f"/workspaces/{workspace_id}/audit", limit=limit, before=before)

    def verify_audit(self, workspace_id: UUID, *, after: int | None = 0) -> AuditVerificationOut:
        """Verify a part of the seals, starting after ``after``, or after the last verification if it is None.

        Owners only.
        """
        path = f"/workspaces/{workspace_id}/audit/verification"
        return self._http.fetch(AuditVerificationOut, "GET", path, query={"after": after})

    def audit_checkpoint(self, workspace_id: UUID) -> dict[str, Any]:
        """Return a signed checkpoint of the audit chain's end. Owners only."""
        return dict(self._http.send("GET", f"/workspaces/{workspace_id}/audit/checkpoint"))
