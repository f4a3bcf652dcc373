"""Speaks the HTTP API. Refusals are raised as the error that the server told; it decides nothing itself."""

from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self
from uuid import UUID

import httpx2

from toolcrib.client.shapes import Approval, KeptCall, Question, Rule, Workspace
from toolcrib.domain.errors import (
    BadArguments,
    Conflict,
    Forbidden,
    NotFound,
    Refused,
    ToolcribError,
    ToolFailed,
    Unauthenticated,
)

_ERRORS: Mapping[int, type[ToolcribError]] = {401: Unauthenticated, 403: Forbidden, 404: NotFound, 409: Conflict}
_PAGE = 100


class NoAnswer(ToolcribError):
    """Nobody answers at the address, or it is no Toolcrib."""

    code = "NO_ANSWER"


class Client:
    """One server, with one token or API key. Used as a context."""

    def __init__(self, server: str, token: str | None, *, seconds: float = 30) -> None:
        self._server = server.rstrip("/")
        self._http = httpx2.Client(
            base_url=f"{self._server}/api/v1",
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=httpx2.Timeout(seconds, connect=5),
            trust_env=False,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    def workspaces(self) -> list[Workspace]:
        return [Workspace.model_validate(item) for item in self._all("/workspaces", page_by="before")]

    def call(self, workspace_id: UUID, tool: str, args: Mapping[str, Any], *, session_id: UUID | None = None) -> Any:
        """The result of a tool; for a call that waits, what it waits for."""
        body = {"tool": tool, "args": dict(args)} | ({"session_id": str(session_id)} if session_id else {})
        return self._send("POST", f"/workspaces/{workspace_id}/tools", body)["result"]

    def kept_call(self, workspace_id: UUID, call_id: UUID) -> KeptCall:
        return KeptCall.model_validate(self._send("GET", f"/workspaces/{workspace_id}/calls/{call_id}"))

    def approvals(self, workspace_id: UUID) -> list[Approval]:
        """What waits for a decision, the oldest first."""
        found = self._all(f"/workspaces/{workspace_id}/approvals", page_by="after")
        return [Approval.model_validate(item) for item in found]

    def approval(self, workspace_id: UUID, approval_id: UUID) -> Approval:
        return Approval.model_validate(self._send("GET", f"/workspaces/{workspace_id}/approvals/{approval_id}"))

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
            self._send("POST", f"/workspaces/{workspace_id}/approvals/{approval.id}/decision", body)
        )

    def questions(self, workspace_id: UUID) -> list[Question]:
        found = self._all(f"/workspaces/{workspace_id}/questions", page_by="after")
        return [Question.model_validate(item) for item in found]

    def question(self, workspace_id: UUID, question_id: UUID) -> Question:
        return Question.model_validate(self._send("GET", f"/workspaces/{workspace_id}/questions/{question_id}"))

    def answer(
        self, workspace_id: UUID, question_id: UUID, answers: Mapping[str, Any], *, by_button: Sequence[str] = ()
    ) -> Question:
        body = {"answers": dict(answers), "by_button": list(by_button)}
        found = self._send("POST", f"/workspaces/{workspace_id}/questions/{question_id}/answer", body)
        return Question.model_validate(found)

    def _all(self, path: str, *, page_by: str) -> Iterator[dict[str, Any]]:
        """Every item of a list, page by page."""
        query: dict[str, Any] = {"limit": _PAGE}
        while True:
            page = self._send("GET", path, query=query)
            yield from page["items"]
            if page.get("next") is None:
                return
            query[page_by] = page["next"]

    def _send(self, method: str, path: str, body: Any = None, *, query: Mapping[str, Any] | None = None) -> Any:
        try:
            response = self._http.request(method, path, json=body, params=query)
            told = response.json()
        except httpx2.TransportError as error:
            raise NoAnswer(
                f"Nobody answers at {self._server} ({error}). Start `toolcrib serve`, or name another."
            ) from None
        except ValueError:
            raise NoAnswer(f"{self._server} does not answer as Toolcrib does. Is the address right?") from None
        if response.is_success:
            return told
        raise _error(response.status_code, told)


def _error(status: int, told: Any) -> ToolcribError:
    """The error that the server told, as it was on its side."""
    if not isinstance(told, Mapping):
        return ToolcribError(f"The server answered {status}.")
    message, fields = str(told.get("error") or f"The server answered {status}."), told.get("fields") or {}
    if status == 400 and fields:
        return BadArguments(fields, message)
    if told.get("code") in ("FORBIDDEN", None) or status != 403:
        return _ERRORS.get(status, ToolFailed)(message)
    return Refused(message)
