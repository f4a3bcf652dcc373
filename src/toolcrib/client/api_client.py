"""Speaks the HTTP API. Refusals are raised as the error that the server told; it decides nothing itself."""

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
    """One server, with one token or API key. Used as a context."""

    def __init__(self, server: str, token: Token, *, seconds: float = 30) -> None:
        self._http = HttpClient(server, token, seconds=seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    def workspaces(self) -> list[WorkspaceData]:
        return [WorkspaceData.model_validate(item) for item in self._http.all("/workspaces", page_by="before")]

    def rename_workspace(self, workspace_id: UUID, name: str) -> WorkspaceData:
        return WorkspaceData.model_validate(self._http.send("PATCH", f"/workspaces/{workspace_id}", {"name": name}))

    def limit_trust(self, workspace_id: UUID, max_trust: str | None) -> WorkspaceData:
        """The most that any session there may trust an agent; none lifts the ceiling."""
        return WorkspaceData.model_validate(
            self._http.send("PATCH", f"/workspaces/{workspace_id}", {"max_trust": max_trust})
        )

    def delete_workspace(self, workspace_id: UUID) -> None:
        """With its history and its agents. Files that lie in a directory of the user's own stay there."""
        self._http.send("DELETE", f"/workspaces/{workspace_id}")

    def tools(self, workspace_id: UUID) -> list[dict[str, Any]]:
        """The tools that one is offered: ``name``, ``description``, ``inputSchema``."""
        found: list[dict[str, Any]] = self._http.send("GET", f"/workspaces/{workspace_id}/tools")
        return found

    def call(self, workspace_id: UUID, tool: str, args: Mapping[str, Any], *, session_id: UUID | None = None) -> Any:
        """The result of a tool; for a call that waits, what it waits for."""
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
        """Which rule would decide a call, and why: as yourself, as an agent, or as a session's agent in it."""
        named = {"agent_id": agent_id, "session_id": session_id}
        body = {"tool": tool, "args": dict(args)} | {name: str(one) for name, one in named.items() if one}
        found: dict[str, Any] = self._http.send("POST", f"/workspaces/{workspace_id}/explain", body)
        return found

    def call_result(self, workspace_id: UUID, call_id: UUID) -> StoredCallData:
        return StoredCallData.model_validate(self._http.send("GET", f"/workspaces/{workspace_id}/calls/{call_id}"))

    def approvals(self, workspace_id: UUID) -> list[ApprovalData]:
        """What waits for a decision, the oldest first."""
        found = self._http.all(f"/workspaces/{workspace_id}/approvals", page_by="after")
        return [ApprovalData.model_validate(item) for item in found]

    def approval(self, workspace_id: UUID, approval_id: UUID) -> ApprovalData:
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
        """Decides on what ``approval`` shows, and on nothing else: its hash is sent along."""
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
        found = self._http.all(f"/workspaces/{workspace_id}/questions", page_by="after")
        return [QuestionData.model_validate(item) for item in found]

    def question(self, workspace_id: UUID, question_id: UUID) -> QuestionData:
        return QuestionData.model_validate(
            self._http.send("GET", f"/workspaces/{workspace_id}/questions/{question_id}")
        )

    def answer(
        self, workspace_id: UUID, question_id: UUID, answers: Mapping[str, Any], *, by_button: Sequence[str] = ()
    ) -> QuestionData:
        body = {"answers": dict(answers), "by_button": list(by_button)}
        found = self._http.send("POST", f"/workspaces/{workspace_id}/questions/{question_id}/answer", body)
        return QuestionData.model_validate(found)

    # Agents, sessions and runs

    def agents(self, workspace_id: UUID) -> list[AgentData]:
        found = self._http.send("GET", f"/workspaces/{workspace_id}/agents")["items"]
        return [AgentData.model_validate(item) for item in found]

    def create_agent(self, workspace_id: UUID, *, name: str, definition: str) -> AgentData:
        body = {"name": name, "definition": definition}
        return AgentData.model_validate(self._http.send("POST", f"/workspaces/{workspace_id}/agents", body))

    def change_agent(self, workspace_id: UUID, agent_id: UUID, *, definition: str) -> AgentData:
        body = {"definition": definition}
        return AgentData.model_validate(self._http.send("PATCH", f"/workspaces/{workspace_id}/agents/{agent_id}", body))

    def delete_agent(self, workspace_id: UUID, agent_id: UUID) -> None:
        self._http.send("DELETE", f"/workspaces/{workspace_id}/agents/{agent_id}")

    def mcp_servers(self, workspace_id: UUID) -> list[McpServerData]:
        found = self._http.send("GET", f"/workspaces/{workspace_id}/mcp-servers")["items"]
        return [McpServerData.model_validate(item) for item in found]

    def create_mcp_server(self, workspace_id: UUID, *, name: str, **how: Any) -> McpServerData:
        """``command`` or ``url``, and ``secrets`` and ``safe_tools`` if there are some; for owners."""
        made = self._http.send("POST", f"/workspaces/{workspace_id}/mcp-servers", {"name": name, **how})
        return McpServerData.model_validate(made)

    def refresh_mcp_server(self, workspace_id: UUID, server_id: UUID) -> McpServerData:
        """Connects to it and lists its tools anew; for owners."""
        path = f"/workspaces/{workspace_id}/mcp-servers/{server_id}/look"
        return McpServerData.model_validate(self._http.send("POST", path))

    def approve_mcp_server(self, workspace_id: UUID, server_id: UUID, *, sha256: str) -> McpServerData:
        """Allows the tools of the list that was seen last, if it has this hash; for owners."""
        path = f"/workspaces/{workspace_id}/mcp-servers/{server_id}/approve"
        return McpServerData.model_validate(self._http.send("POST", path, {"sha256": sha256}))

    def delete_mcp_server(self, workspace_id: UUID, server_id: UUID) -> None:
        self._http.send("DELETE", f"/workspaces/{workspace_id}/mcp-servers/{server_id}")

    def packages(self, workspace_id: UUID) -> list[PackageData]:
        found = self._http.send("GET", f"/workspaces/{workspace_id}/packages")["items"]
        return [PackageData.model_validate(item) for item in found]

    def install_package(self, workspace_id: UUID, archive: bytes) -> PackageData:
        """A zip, tar or tar.gz; for owners."""
        return PackageData.model_validate(
            self._http.send("POST", f"/workspaces/{workspace_id}/packages", content=archive)
        )

    def remove_package(self, workspace_id: UUID, name: str) -> None:
        self._http.send("DELETE", f"/workspaces/{workspace_id}/packages/{name}")

    def sessions(self, workspace_id: UUID, *, limit: int = 50) -> list[SessionData]:
        """The newest first."""
        found = self._http.send("GET", f"/workspaces/{workspace_id}/sessions", query={"limit": limit})["items"]
        return [SessionData.model_validate(item) for item in found]

    def session(self, workspace_id: UUID, session_id: UUID) -> SessionData:
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
        """With ``package``, a run of that package's workflow."""
        body = {"agent_id": str(agent_id), "title": title, "mode": mode, "trust": trust, "package": package}
        return SessionData.model_validate(self._http.send("POST", f"/workspaces/{workspace_id}/sessions", body))

    def change_session(self, workspace_id: UUID, session_id: UUID, **changes: Any) -> SessionData:
        """What is given: ``title``, ``trust``, ``phase``."""
        path = f"/workspaces/{workspace_id}/sessions/{session_id}"
        return SessionData.model_validate(self._http.send("PATCH", path, changes))

    def send(self, workspace_id: UUID, session_id: UUID, text: str) -> RunData:
        """A message to the session's agent; the run answers it."""
        path = f"/workspaces/{workspace_id}/sessions/{session_id}/messages"
        return RunData.model_validate(self._http.send("POST", path, {"text": text}))

    def messages(self, workspace_id: UUID, session_id: UUID) -> list[MessageData]:
        found = self._http.all(f"/workspaces/{workspace_id}/sessions/{session_id}/messages", page_by="after")
        return [MessageData.model_validate(item) for item in found]

    def runs(self, workspace_id: UUID, session_id: UUID) -> list[RunData]:
        """The newest first."""
        found = self._http.send("GET", f"/workspaces/{workspace_id}/sessions/{session_id}/runs")["items"]
        return [RunData.model_validate(item) for item in found]

    def cancel(self, workspace_id: UUID, run_id: UUID) -> RunData:
        return RunData.model_validate(self._http.send("POST", f"/workspaces/{workspace_id}/runs/{run_id}/cancel"))

    def events(
        self, workspace_id: UUID, session_id: UUID, *, after: int = 0, limit: int = 1_000
    ) -> list[StreamMessage]:
        """What has happened after an event, at most so much of it."""
        path = f"/workspaces/{workspace_id}/sessions/{session_id}/events"
        found = self._http.send("GET", path, query={"after": after, "limit": limit})["items"]
        return [StreamMessage(type=f"chat:{one['type']}", payload=one["payload"], seq=one["seq"]) for one in found]

    def stream_events(self, workspace_id: UUID, session_id: UUID, *, after: int) -> "SessionEventStream":
        """What comes after an event, and then what happens; ends when the server ends it. Come back with the last."""
        path = f"/workspaces/{workspace_id}/sessions/{session_id}/events/stream"
        return SessionEventStream(self._http.stream(path, query={"after": after}))

    # Models, keys, people, the book

    def provider_credentials(self, kind: str = "models") -> list[ProviderCredentialsData]:
        """Whose models you have stored access to; with ``search``, whose search engine."""
        found = [
            ProviderCredentialsData.model_validate(item) for item in self._http.send("GET", "/credentials")["items"]
        ]
        return [one for one in found if one.kind == kind]

    def store_access(self, provider: str, *, secret: str, base_url: str | None = None, check: bool = True) -> None:
        body = {"secret": secret, "base_url": base_url, "check": check}
        self._http.send("PUT", f"/credentials/{provider}", body)

    def remove_access(self, provider: str) -> None:
        self._http.send("DELETE", f"/credentials/{provider}")

    def models(self, provider: str) -> list[ModelData]:
        return [
            ModelData.model_validate(item) for item in self._http.send("GET", f"/providers/{provider}/models")["items"]
        ]

    def keys(self) -> list[ApiKeyData]:
        return [ApiKeyData.model_validate(item) for item in self._http.send("GET", "/api-keys")["items"]]

    def create_key(self, *, name: str, days: int | None = None) -> tuple[ApiKeyData, str]:
        """The key, and its secret, which is told this once."""
        made = self._http.send("POST", "/api-keys", {"name": name, "expires_in_days": days})
        return ApiKeyData.model_validate(made["key"]), str(made["secret"])

    def revoke_key(self, key_id: UUID) -> None:
        self._http.send("DELETE", f"/api-keys/{key_id}")

    def me(self) -> UserData:
        return UserData.model_validate(self._http.send("GET", "/auth/me"))

    def audit(self, workspace_id: UUID, *, limit: int = 100, before: int | None = None) -> list[AuditRecordData]:
        """The newest records first; for owners."""
        query = {"limit": limit} | ({} if before is None else {"before": before})
        found = self._http.send("GET", f"/workspaces/{workspace_id}/audit", query=query)["items"]
        return [AuditRecordData.model_validate(item) for item in found]

    def verify_audit(self, workspace_id: UUID, *, after: int | None = 0) -> AuditVerificationData:
        """Has a part of the seals recomputed, from the one after ``after`` on, or since the last time; for owners."""
        query = {} if after is None else {"after": after}
        found = self._http.send("GET", f"/workspaces/{workspace_id}/audit/verification", query=query)
        return AuditVerificationData.model_validate(found)

    def audit_checkpoint(self, workspace_id: UUID) -> dict[str, Any]:
        """Where the audit chain ends, signed; for owners."""
        return dict(self._http.send("GET", f"/workspaces/{workspace_id}/audit/checkpoint"))


class SessionEventStream(Iterator[StreamMessage]):
    """What is told of a session. ``close`` ends it, from any thread."""

    def __init__(self, stream: JsonStream) -> None:
        self._stream = stream

    def __next__(self) -> StreamMessage:
        return StreamMessage.model_validate(next(self._stream))

    def close(self) -> None:
        self._stream.close()
