"""The client of the HTTP API. An error response is raised as the error that the server reported."""

from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self
from uuid import UUID

from toolcrib.client.http_client import HttpClient, JsonStream, Token
from toolcrib.client.models import (
    AgentData,
    ApiKeyData,
    ApprovalData,
    AuditRecordData,
    AuditVerificationData,
    GrantRuleData,
    McpServerData,
    MessageData,
    ModelData,
    PackageData,
    ProviderCredentialsData,
    QuestionData,
    RunData,
    SessionData,
    StoredCallData,
    StreamMessage,
    UserData,
    WorkspaceData,
)


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

    def workspaces(self) -> list[WorkspaceData]:
        """Return the workspaces that you are a member of."""
        return [WorkspaceData.model_validate(item) for item in self._http.all("/workspaces", page_by="before")]

    def rename_workspace(self, workspace_id: UUID, name: str) -> WorkspaceData:
        """Change a workspace's name."""
        return WorkspaceData.model_validate(self._http.send("PATCH", f"/workspaces/{workspace_id}", {"name": name}))

    def limit_trust(self, workspace_id: UUID, max_trust: str | None) -> WorkspaceData:
        """Set the highest trust of any session there; None removes the limit."""
        return WorkspaceData.model_validate(
            self._http.send("PATCH", f"/workspaces/{workspace_id}", {"max_trust": max_trust})
        )

    def delete_workspace(self, workspace_id: UUID) -> None:
        """Delete a workspace with its history and agents. Files in a user's own directory stay."""
        self._http.send("DELETE", f"/workspaces/{workspace_id}")

    def tools(self, workspace_id: UUID) -> list[dict[str, Any]]:
        """Return the tools that you may use: ``name``, ``description``, ``inputSchema``."""
        found: list[dict[str, Any]] = self._http.send("GET", f"/workspaces/{workspace_id}/tools")
        return found

    def call(self, workspace_id: UUID, tool: str, args: Mapping[str, Any], *, session_id: UUID | None = None) -> Any:
        """Call a tool.

        Returns:
            The tool's result; for a call that waits, what it waits for.
        """
        body = {"tool": tool, "args": dict(args)} | ({"session_id": str(session_id)} if session_id else {})
        return self._http.send("POST", f"/workspaces/{workspace_id}/tools", body)["result"]

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

    def call_result(self, workspace_id: UUID, call_id: UUID) -> StoredCallData:
        """Return a stored call with its full result."""
        return StoredCallData.model_validate(self._http.send("GET", f"/workspaces/{workspace_id}/calls/{call_id}"))

    def approvals(self, workspace_id: UUID) -> list[ApprovalData]:
        """Return the pending approvals, oldest first."""
        found = self._http.all(f"/workspaces/{workspace_id}/approvals", page_by="after")
        return [ApprovalData.model_validate(item) for item in found]

    def approval(self, workspace_id: UUID, approval_id: UUID) -> ApprovalData:
        """Return one approval."""
        return ApprovalData.model_validate(
            self._http.send("GET", f"/workspaces/{workspace_id}/approvals/{approval_id}")
        )

    def decide(
        self,
        workspace_id: UUID,
        approval: ApprovalData,
        *,
        approved: bool,
        scope: str = "once",
        reason: str | None = None,
        rule: GrantRuleData | None = None,
    ) -> ApprovalData:
        """Decide an approval. Its hash is sent along, so that the decision is valid only for what it shows.

        Args:
            scope: ``once``, ``session`` or ``always``.
            reason: Why the call was rejected; the agent receives it.
            rule: The grant to store, for a scope beyond ``once``.
        """
        body: dict[str, Any] = {
            "approved": approved,
            "scope": scope,
            "reason": reason,
            "arguments_sha256": approval.arguments_sha256,
            "rule": rule.model_dump() if rule else None,
        }
        return ApprovalData.model_validate(
            self._http.send("POST", f"/workspaces/{workspace_id}/approvals/{approval.id}/decision", body)
        )

    def questions(self, workspace_id: UUID) -> list[QuestionData]:
        """Return the pending questions."""
        found = self._http.all(f"/workspaces/{workspace_id}/questions", page_by="after")
        return [QuestionData.model_validate(item) for item in found]

    def question(self, workspace_id: UUID, question_id: UUID) -> QuestionData:
        """Return one question."""
        return QuestionData.model_validate(
            self._http.send("GET", f"/workspaces/{workspace_id}/questions/{question_id}")
        )

    def answer(
        self, workspace_id: UUID, question_id: UUID, answers: Mapping[str, Any], *, by_button: Sequence[str] = ()
    ) -> QuestionData:
        """Answer a question.

        Args:
            answers: One answer per question, by name.
            by_button: The names of the questions that were answered by a button.
        """
        body = {"answers": dict(answers), "by_button": list(by_button)}
        found = self._http.send("POST", f"/workspaces/{workspace_id}/questions/{question_id}/answer", body)
        return QuestionData.model_validate(found)

    # Agents, sessions and runs

    def agents(self, workspace_id: UUID) -> list[AgentData]:
        """Return the agents of a workspace."""
        found = self._http.send("GET", f"/workspaces/{workspace_id}/agents")["items"]
        return [AgentData.model_validate(item) for item in found]

    def create_agent(self, workspace_id: UUID, *, name: str, definition: str) -> AgentData:
        """Create an agent from its YAML definition."""
        body = {"name": name, "definition": definition}
        return AgentData.model_validate(self._http.send("POST", f"/workspaces/{workspace_id}/agents", body))

    def change_agent(self, workspace_id: UUID, agent_id: UUID, *, definition: str) -> AgentData:
        """Change an agent's definition."""
        body = {"definition": definition}
        return AgentData.model_validate(self._http.send("PATCH", f"/workspaces/{workspace_id}/agents/{agent_id}", body))

    def delete_agent(self, workspace_id: UUID, agent_id: UUID) -> None:
        """Delete an agent."""
        self._http.send("DELETE", f"/workspaces/{workspace_id}/agents/{agent_id}")

    def mcp_servers(self, workspace_id: UUID) -> list[McpServerData]:
        """Return the MCP servers of a workspace."""
        found = self._http.send("GET", f"/workspaces/{workspace_id}/mcp-servers")["items"]
        return [McpServerData.model_validate(item) for item in found]

    def create_mcp_server(self, workspace_id: UUID, *, name: str, **how: Any) -> McpServerData:
        """Add an MCP server: ``command`` or ``url``, and optionally ``secrets`` and ``safe_tools``. Owners only."""
        made = self._http.send("POST", f"/workspaces/{workspace_id}/mcp-servers", {"name": name, **how})
        return McpServerData.model_validate(made)

    def refresh_mcp_server(self, workspace_id: UUID, server_id: UUID) -> McpServerData:
        """Connect to an MCP server and list its tools again. Owners only."""
        path = f"/workspaces/{workspace_id}/mcp-servers/{server_id}/refresh"
        return McpServerData.model_validate(self._http.send("POST", path))

    def approve_mcp_server(self, workspace_id: UUID, server_id: UUID, *, sha256: str) -> McpServerData:
        """Approve the latest tool list if it has this hash. Owners only."""
        path = f"/workspaces/{workspace_id}/mcp-servers/{server_id}/approve"
        return McpServerData.model_validate(self._http.send("POST", path, {"sha256": sha256}))

    def delete_mcp_server(self, workspace_id: UUID, server_id: UUID) -> None:
        """Delete an MCP server."""
        self._http.send("DELETE", f"/workspaces/{workspace_id}/mcp-servers/{server_id}")

    def packages(self, workspace_id: UUID) -> list[PackageData]:
        """Return the packages of a workspace."""
        found = self._http.send("GET", f"/workspaces/{workspace_id}/packages")["items"]
        return [PackageData.model_validate(item) for item in found]

    def install_package(self, workspace_id: UUID, archive: bytes) -> PackageData:
        """Install a package from a zip, tar or tar.gz. Owners only."""
        return PackageData.model_validate(
            self._http.send("POST", f"/workspaces/{workspace_id}/packages", content=archive)
        )

    def remove_package(self, workspace_id: UUID, name: str) -> None:
        """Remove a package."""
        self._http.send("DELETE", f"/workspaces/{workspace_id}/packages/{name}")

    def sessions(self, workspace_id: UUID, *, limit: int = 50) -> list[SessionData]:
        """Return the sessions, newest first."""
        found = self._http.send("GET", f"/workspaces/{workspace_id}/sessions", query={"limit": limit})["items"]
        return [SessionData.model_validate(item) for item in found]

    def session(self, workspace_id: UUID, session_id: UUID) -> SessionData:
        """Return one session."""
        return SessionData.model_validate(self._http.send("GET", f"/workspaces/{workspace_id}/sessions/{session_id}"))

    def create_session(
        self,
        workspace_id: UUID,
        *,
        agent_id: UUID,
        title: str | None = None,
        mode: str = "build",
        trust: str | None,
        package: str | None = None,
    ) -> SessionData:
        """Create a session. With ``package`` it runs that package's workflow."""
        body = {"agent_id": str(agent_id), "title": title, "mode": mode, "trust": trust, "package": package}
        return SessionData.model_validate(self._http.send("POST", f"/workspaces/{workspace_id}/sessions", body))

    def change_session(self, workspace_id: UUID, session_id: UUID, **changes: Any) -> SessionData:
        """Change a session: ``title``, ``trust``, ``phase``."""
        path = f"/workspaces/{workspace_id}/sessions/{session_id}"
        return SessionData.model_validate(self._http.send("PATCH", path, changes))

    def send(self, workspace_id: UUID, session_id: UUID, text: str) -> RunData:
        """Send a message to the session's agent and return the run that answers it."""
        path = f"/workspaces/{workspace_id}/sessions/{session_id}/messages"
        return RunData.model_validate(self._http.send("POST", path, {"text": text}))

    def messages(self, workspace_id: UUID, session_id: UUID) -> list[MessageData]:
        """Return all messages of a session."""
        found = self._http.all(f"/workspaces/{workspace_id}/sessions/{session_id}/messages", page_by="after")
        return [MessageData.model_validate(item) for item in found]

    def runs(self, workspace_id: UUID, session_id: UUID) -> list[RunData]:
        """Return the runs of a session, newest first."""
        found = self._http.send("GET", f"/workspaces/{workspace_id}/sessions/{session_id}/runs")["items"]
        return [RunData.model_validate(item) for item in found]

    def cancel(self, workspace_id: UUID, run_id: UUID) -> RunData:
        """Cancel a run."""
        return RunData.model_validate(self._http.send("POST", f"/workspaces/{workspace_id}/runs/{run_id}/cancel"))

    def events(
        self, workspace_id: UUID, session_id: UUID, *, after: int = 0, limit: int = 1_000
    ) -> list[StreamMessage]:
        """Return up to ``limit`` events after an event number."""
        path = f"/workspaces/{workspace_id}/sessions/{session_id}/events"
        found = self._http.send("GET", path, query={"after": after, "limit": limit})["items"]
        return [StreamMessage(type=f"chat:{one['type']}", payload=one["payload"], seq=one["seq"]) for one in found]

    def stream_events(self, workspace_id: UUID, session_id: UUID, *, after: int) -> "SessionEventStream":
        """Stream the events after an event number, then new ones, until the server ends the stream.

        Resume after the last.
        """
        path = f"/workspaces/{workspace_id}/sessions/{session_id}/events/stream"
        return SessionEventStream(self._http.stream(path, query={"after": after}))

    # Models, keys, users, the audit log

    def provider_credentials(self, kind: str = "models") -> list[ProviderCredentialsData]:
        """Return the providers for which you stored credentials; with ``search``, the search engines."""
        found = [
            ProviderCredentialsData.model_validate(item) for item in self._http.send("GET", "/credentials")["items"]
        ]
        return [one for one in found if one.kind == kind]

    def store_access(self, provider: str, *, secret: str, base_url: str | None = None, check: bool = True) -> None:
        """Store your credentials for a provider. With ``check`` the provider must accept them."""
        body = {"secret": secret, "base_url": base_url, "check": check}
        self._http.send("PUT", f"/credentials/{provider}", body)

    def remove_access(self, provider: str) -> None:
        """Delete your credentials for a provider."""
        self._http.send("DELETE", f"/credentials/{provider}")

    def models(self, provider: str) -> list[ModelData]:
        """Return the models of a provider that you may use."""
        return [
            ModelData.model_validate(item) for item in self._http.send("GET", f"/providers/{provider}/models")["items"]
        ]

    def keys(self) -> list[ApiKeyData]:
        """Return your API keys."""
        return [ApiKeyData.model_validate(item) for item in self._http.send("GET", "/api-keys")["items"]]

    def create_key(self, *, name: str, days: int | None = None) -> tuple[ApiKeyData, str]:
        """Create an API key. Returns the key and its secret, which is shown only once."""
        made = self._http.send("POST", "/api-keys", {"name": name, "expires_in_days": days})
        return ApiKeyData.model_validate(made["key"]), str(made["secret"])

    def revoke_key(self, key_id: UUID) -> None:
        """Revoke an API key."""
        self._http.send("DELETE", f"/api-keys/{key_id}")

    def me(self) -> UserData:
        """Return your own account."""
        return UserData.model_validate(self._http.send("GET", "/auth/me"))

    def audit(self, workspace_id: UUID, *, limit: int = 100, before: int | None = None) -> list[AuditRecordData]:
        """Return the audit records, newest first. Owners only."""
        query = {"limit": limit} | ({} if before is None else {"before": before})
        found = self._http.send("GET", f"/workspaces/{workspace_id}/audit", query=query)["items"]
        return [AuditRecordData.model_validate(item) for item in found]

    def verify_audit(self, workspace_id: UUID, *, after: int | None = 0) -> AuditVerificationData:
        """Verify a part of the seals, starting after ``after``, or after the last verification if it is None.

        Owners only.
        """
        query = {} if after is None else {"after": after}
        found = self._http.send("GET", f"/workspaces/{workspace_id}/audit/verification", query=query)
        return AuditVerificationData.model_validate(found)

    def audit_checkpoint(self, workspace_id: UUID) -> dict[str, Any]:
        """Return a signed checkpoint of the audit chain's end. Owners only."""
        return dict(self._http.send("GET", f"/workspaces/{workspace_id}/audit/checkpoint"))


class SessionEventStream(Iterator[StreamMessage]):
    """The messages of a session. ``close`` ends the stream, from any thread."""

    def __init__(self, stream: JsonStream) -> None:
        self._stream = stream

    def __next__(self) -> StreamMessage:
        return StreamMessage.model_validate(next(self._stream))

    def close(self) -> None:
        """End the stream."""
        self._stream.close()
