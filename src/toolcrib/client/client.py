"""Speaks the HTTP API. Refusals are raised as the error that the server told; it decides nothing itself."""

from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self
from uuid import UUID

from toolcrib.client.http import Http, Stream, Token
from toolcrib.client.shapes import (
    Access,
    Agent,
    Approval,
    KeptCall,
    Key,
    McpServer,
    Message,
    Model,
    Person,
    Question,
    Record,
    Rule,
    Run,
    Session,
    Told,
    Verified,
    Workspace,
)


class Client:
    """One server, with one token or API key. Used as a context."""

    def __init__(self, server: str, token: Token, *, seconds: float = 30) -> None:
        self._http = Http(server, token, seconds=seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    def workspaces(self) -> list[Workspace]:
        return [Workspace.model_validate(item) for item in self._http.all("/workspaces", page_by="before")]

    def rename_workspace(self, workspace_id: UUID, name: str) -> Workspace:
        return Workspace.model_validate(self._http.send("PATCH", f"/workspaces/{workspace_id}", {"name": name}))

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
        self, workspace_id: UUID, tool: str, args: Mapping[str, Any], *, agent_id: UUID | None = None
    ) -> dict[str, Any]:
        """Which rule would decide a call, and why: as yourself, or as an agent."""
        body = {"tool": tool, "args": dict(args), "agent_id": str(agent_id) if agent_id else None}
        found: dict[str, Any] = self._http.send("POST", f"/workspaces/{workspace_id}/explain", body)
        return found

    def kept_call(self, workspace_id: UUID, call_id: UUID) -> KeptCall:
        return KeptCall.model_validate(self._http.send("GET", f"/workspaces/{workspace_id}/calls/{call_id}"))

    def approvals(self, workspace_id: UUID) -> list[Approval]:
        """What waits for a decision, the oldest first."""
        found = self._http.all(f"/workspaces/{workspace_id}/approvals", page_by="after")
        return [Approval.model_validate(item) for item in found]

    def approval(self, workspace_id: UUID, approval_id: UUID) -> Approval:
        return Approval.model_validate(self._http.send("GET", f"/workspaces/{workspace_id}/approvals/{approval_id}"))

    def decide(
        self,
        workspace_id: UUID,
        approval: Approval,
        *,
        approved: bool,
        scope: str = "once",
        reason: str | None = None,
        rule: Rule | None = None,
    ) -> Approval:
        """Decides on what ``approval`` shows, and on nothing else: its hash is sent along."""
        body: dict[str, Any] = {
            "approved": approved,
            "scope": scope,
            "reason": reason,
            "arguments_sha256": approval.arguments_sha256,
            "rule": rule.model_dump() if rule else None,
        }
        return Approval.model_validate(
            self._http.send("POST", f"/workspaces/{workspace_id}/approvals/{approval.id}/decision", body)
        )

    def questions(self, workspace_id: UUID) -> list[Question]:
        found = self._http.all(f"/workspaces/{workspace_id}/questions", page_by="after")
        return [Question.model_validate(item) for item in found]

    def question(self, workspace_id: UUID, question_id: UUID) -> Question:
        return Question.model_validate(self._http.send("GET", f"/workspaces/{workspace_id}/questions/{question_id}"))

    def answer(
        self, workspace_id: UUID, question_id: UUID, answers: Mapping[str, Any], *, by_button: Sequence[str] = ()
    ) -> Question:
        body = {"answers": dict(answers), "by_button": list(by_button)}
        found = self._http.send("POST", f"/workspaces/{workspace_id}/questions/{question_id}/answer", body)
        return Question.model_validate(found)

    # Agents, sessions and runs

    def agents(self, workspace_id: UUID) -> list[Agent]:
        found = self._http.send("GET", f"/workspaces/{workspace_id}/agents")["items"]
        return [Agent.model_validate(item) for item in found]

    def create_agent(self, workspace_id: UUID, *, name: str, definition: str) -> Agent:
        body = {"name": name, "definition": definition}
        return Agent.model_validate(self._http.send("POST", f"/workspaces/{workspace_id}/agents", body))

    def change_agent(self, workspace_id: UUID, agent_id: UUID, *, definition: str) -> Agent:
        body = {"definition": definition}
        return Agent.model_validate(self._http.send("PATCH", f"/workspaces/{workspace_id}/agents/{agent_id}", body))

    def delete_agent(self, workspace_id: UUID, agent_id: UUID) -> None:
        self._http.send("DELETE", f"/workspaces/{workspace_id}/agents/{agent_id}")

    def mcp_servers(self, workspace_id: UUID) -> list[McpServer]:
        found = self._http.send("GET", f"/workspaces/{workspace_id}/mcp-servers")["items"]
        return [McpServer.model_validate(item) for item in found]

    def create_mcp_server(self, workspace_id: UUID, *, name: str, **how: Any) -> McpServer:
        """``command`` or ``url``, and ``secrets`` and ``safe_tools`` if there are some; for owners."""
        made = self._http.send("POST", f"/workspaces/{workspace_id}/mcp-servers", {"name": name, **how})
        return McpServer.model_validate(made)

    def look_at_mcp_server(self, workspace_id: UUID, server_id: UUID) -> McpServer:
        """Connects to it and lists its tools anew; for owners."""
        path = f"/workspaces/{workspace_id}/mcp-servers/{server_id}/look"
        return McpServer.model_validate(self._http.send("POST", path))

    def approve_mcp_server(self, workspace_id: UUID, server_id: UUID, *, sha256: str) -> McpServer:
        """Allows the tools of the list that was seen last, if it has this hash; for owners."""
        path = f"/workspaces/{workspace_id}/mcp-servers/{server_id}/approve"
        return McpServer.model_validate(self._http.send("POST", path, {"sha256": sha256}))

    def delete_mcp_server(self, workspace_id: UUID, server_id: UUID) -> None:
        self._http.send("DELETE", f"/workspaces/{workspace_id}/mcp-servers/{server_id}")

    def sessions(self, workspace_id: UUID, *, limit: int = 50) -> list[Session]:
        """The newest first."""
        found = self._http.send("GET", f"/workspaces/{workspace_id}/sessions", query={"limit": limit})["items"]
        return [Session.model_validate(item) for item in found]

    def session(self, workspace_id: UUID, session_id: UUID) -> Session:
        return Session.model_validate(self._http.send("GET", f"/workspaces/{workspace_id}/sessions/{session_id}"))

    def create_session(
        self, workspace_id: UUID, *, agent_id: UUID, title: str | None = None, mode: str = "build", trust: str | None
    ) -> Session:
        body = {"agent_id": str(agent_id), "title": title, "mode": mode, "trust": trust}
        return Session.model_validate(self._http.send("POST", f"/workspaces/{workspace_id}/sessions", body))

    def change_session(self, workspace_id: UUID, session_id: UUID, **changes: Any) -> Session:
        """``title``, ``trust`` or both."""
        path = f"/workspaces/{workspace_id}/sessions/{session_id}"
        return Session.model_validate(self._http.send("PATCH", path, changes))

    def send(self, workspace_id: UUID, session_id: UUID, text: str) -> Run:
        """A message to the session's agent; the run answers it."""
        path = f"/workspaces/{workspace_id}/sessions/{session_id}/messages"
        return Run.model_validate(self._http.send("POST", path, {"text": text}))

    def messages(self, workspace_id: UUID, session_id: UUID) -> list[Message]:
        found = self._http.all(f"/workspaces/{workspace_id}/sessions/{session_id}/messages", page_by="after")
        return [Message.model_validate(item) for item in found]

    def runs(self, workspace_id: UUID, session_id: UUID) -> list[Run]:
        """The newest first."""
        found = self._http.send("GET", f"/workspaces/{workspace_id}/sessions/{session_id}/runs")["items"]
        return [Run.model_validate(item) for item in found]

    def cancel(self, workspace_id: UUID, run_id: UUID) -> Run:
        return Run.model_validate(self._http.send("POST", f"/workspaces/{workspace_id}/runs/{run_id}/cancel"))

    def events(self, workspace_id: UUID, session_id: UUID, *, after: int = 0, limit: int = 1_000) -> list[Told]:
        """What has happened after an event, at most so much of it."""
        path = f"/workspaces/{workspace_id}/sessions/{session_id}/events"
        found = self._http.send("GET", path, query={"after": after, "limit": limit})["items"]
        return [Told(type=f"chat:{one['type']}", payload=one["payload"], seq=one["seq"]) for one in found]

    def watch(self, workspace_id: UUID, session_id: UUID, *, after: int) -> "Watch":
        """What comes after an event, and then what happens; ends when the server ends it. Come back with the last."""
        path = f"/workspaces/{workspace_id}/sessions/{session_id}/events/stream"
        return Watch(self._http.stream(path, query={"after": after}))

    # Models, keys, people, the book

    def access(self) -> list[Access]:
        return [Access.model_validate(item) for item in self._http.send("GET", "/credentials")["items"]]

    def store_access(self, provider: str, *, secret: str, base_url: str | None = None, check: bool = True) -> None:
        body = {"secret": secret, "base_url": base_url, "check": check}
        self._http.send("PUT", f"/credentials/{provider}", body)

    def remove_access(self, provider: str) -> None:
        self._http.send("DELETE", f"/credentials/{provider}")

    def models(self, provider: str) -> list[Model]:
        return [Model.model_validate(item) for item in self._http.send("GET", f"/providers/{provider}/models")["items"]]

    def keys(self) -> list[Key]:
        return [Key.model_validate(item) for item in self._http.send("GET", "/api-keys")["items"]]

    def create_key(self, *, name: str, days: int | None = None) -> tuple[Key, str]:
        """The key, and its secret, which is told this once."""
        made = self._http.send("POST", "/api-keys", {"name": name, "expires_in_days": days})
        return Key.model_validate(made["key"]), str(made["secret"])

    def revoke_key(self, key_id: UUID) -> None:
        self._http.send("DELETE", f"/api-keys/{key_id}")

    def me(self) -> Person:
        return Person.model_validate(self._http.send("GET", "/auth/me"))

    def book(self, workspace_id: UUID, *, limit: int = 100, before: int | None = None) -> list[Record]:
        """The newest records first; for owners."""
        query = {"limit": limit} | ({} if before is None else {"before": before})
        found = self._http.send("GET", f"/workspaces/{workspace_id}/audit", query=query)["items"]
        return [Record.model_validate(item) for item in found]

    def verify_book(self, workspace_id: UUID, *, after: int = 0) -> Verified:
        """Has a part of the seals recomputed, from the one after ``after`` on; for owners."""
        found = self._http.send("GET", f"/workspaces/{workspace_id}/audit/verification", query={"after": after})
        return Verified.model_validate(found)


class Watch(Iterator[Told]):
    """What is told of a session. ``close`` ends it, from any thread."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def __next__(self) -> Told:
        return Told.model_validate(next(self._stream))

    def close(self) -> None:
        self._stream.close()
