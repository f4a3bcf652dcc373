"""Elicitation: asks the person behind an MCP client about pending questions and approvals.

A question is asked only if the client uses a person's own key. An agent's key never answers or decides anything,
because its holder is the agent. Such a client can only show where a person can decide.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final
from uuid import UUID

from mcp.server.context import ServerRequestContext
from mcp.shared.message import ServerMessageMetadata
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ClientCapabilities,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    ElicitResult,
    InputRequiredResult,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from toolcrib.api.api_services import ApiServices
from toolcrib.api.mcp.mcp_app import McpRequest
from toolcrib.api.mcp.mcp_tool_results import done, text_tool_result
from toolcrib.api.pause_notices import pause_summary, pause_url
from toolcrib.core.display_text import escape
from toolcrib.core.errors import BadArguments
from toolcrib.core.ids import CallId, PauseId
from toolcrib.core.paused_calls import PauseKind, Question, QuestionRequest
from toolcrib.core.tool_calls import Outcome
from toolcrib.policy.model_results import model_result
from toolcrib.schemas.paused_calls import ApprovalOut, paused_call_out

_SIMPLE: Final = frozenset({"string", "number", "integer", "boolean"})
# The JSON Schema keywords that MCP forms support; the answer is validated against the full schema anyway.
_KEPT: Final = frozenset({"type", "enum", "enumNames", "oneOf", "items", "default"}) | frozenset(
    {"minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems"}
)


@dataclass(frozen=True, slots=True)
class ElicitationSupport:
    """What a client can show to its user."""

    forms: bool = False
    links: bool = False

    @classmethod
    def of(cls, client: ClientCapabilities | None) -> "ElicitationSupport":
        """Read it from the client's capabilities."""
        elicitation = client.elicitation if client else None
        if elicitation is None:
            return cls()
        # A client that only says that it supports elicitation can show forms.
        return cls(elicitation.form is not None or elicitation.url is None, elicitation.url is not None)


@dataclass(frozen=True, slots=True)
class PendingPause:
    """What a call waits for."""

    kind: PauseKind
    id: PauseId
    call_id: CallId

    @classmethod
    def of(cls, outcome: Outcome) -> "PendingPause":
        """Create it from the outcome of a paused call."""
        kind = PauseKind(str(outcome.metadata["status"]).removesuffix("_pending"))
        return cls(kind, PauseId(UUID(str(outcome.metadata["pause_id"]))), outcome.call_id)

    @classmethod
    def read(cls, state: str) -> "PendingPause":
        """Parse the state that a client returned.

        It is only a reference: the key of the request decides what is visible.
        """
        try:
            kind, pause_id, call_id = state.split(":")
            return cls(PauseKind(kind), PauseId(UUID(pause_id)), CallId(UUID(call_id)))
        except ValueError:
            raise BadArguments(
                {"requestState": "Not a value that this server issued. Send it back unchanged."}
            ) from None

    @property
    def state(self) -> str:
        """The state to send to the client."""
        return f"{self.kind}:{self.id}:{self.call_id}"


def form(items: Sequence[Question]) -> ElicitRequestFormParams | None:
    """Return one form for all questions; None if one of them needs more than MCP forms support."""
    fields = {item.name: field for item in items if (field := _field(item)) is not None}
    if len(fields) < len(items):
        return None
    return ElicitRequestFormParams(
        message="\n".join(escape(item.question) for item in items),
        requested_schema={"type": "object", "properties": fields, "required": list(fields)},
    )


def link(pending: PendingPause, address: str) -> ElicitRequestURLParams:
    """Return a link to the page where it is decided."""
    what = "decide on" if pending.kind is PauseKind.APPROVAL else "answer"
    return ElicitRequestURLParams(
        message=f"A person must {what} this call in Toolcrib.", url=address, elicitation_id=str(pending.id)
    )


def confirmation(pending: PendingPause, address: str, what: str) -> ElicitRequestFormParams:
    """Return the same as a form, for clients that show no links.

    Accepting it only says that the person has been there.
    """
    where = "Approve or reject it" if pending.kind is PauseKind.APPROVAL else "Answer it"
    return ElicitRequestFormParams(
        message=f"A person must respond in Toolcrib:\n{what}\n\n{where} at {address}, then continue here.",
        requested_schema={"type": "object", "properties": {}},
    )


def _field(item: Question) -> dict[str, Any] | None:
    if item.schema.get("type") not in _SIMPLE and not _is_choice(item.schema):
        return None
    return {key: value for key, value in item.schema.items() if key in _KEPT} | {"description": escape(item.question)}


def _is_choice(schema: Mapping[str, Any]) -> bool:
    """Return whether the schema is a multiple choice of fixed values."""
    items = schema.get("items")
    return schema.get("type") == "array" and isinstance(items, Mapping) and not {"enum", "anyOf"}.isdisjoint(items)


# How long a client waits for a decision, and how often the row is polled.
PATIENCE_SECONDS: Final = 50.0
_POLL_SECONDS: Final = 0.3
_DECISION: Final = "decision"
# How much a form shows of a call and its effect; the page shows everything.
_MOST_CHARACTERS: Final = 16_000
_WAITING: Final = frozenset({"paused", "running"})

Context = ServerRequestContext[dict[str, Any], Any]
Params = ElicitRequestFormParams | ElicitRequestURLParams


class Elicitation:
    """Asks the person behind the client about a paused call, and waits a while for the decision."""

    def __init__(self, services: ApiServices, *, patience: float = PATIENCE_SECONDS) -> None:
        self._services = services
        self._patience = patience

    async def ask(
        self, context: Context, mcp_request: McpRequest, outcome: Outcome
    ) -> CallToolResult | InputRequiredResult:
        """Ask about a paused call, and return its result if it is decided in time."""
        pending = PendingPause.of(outcome)
        if context.protocol_version in MODERN_PROTOCOL_VERSIONS:
            return await self._ask_for_input(context, mcp_request, pending)
        items = await self._for_forms(context, mcp_request, pending)
        params: Params | None = form(items) if items else await self._pointer(context, mcp_request, pending)
        if params is None:
            return _cannot_ask(mcp_request, pending)
        answer = await context.session.send_request(
            ElicitRequest(params=params),
            ElicitResult,
            metadata=ServerMessageMetadata(related_request_id=context.request_id),
        )
        return await self._apply_answer(mcp_request, pending, answer.action, answer.content if items else None)

    def cannot_ask(self, mcp_request: McpRequest, outcome: Outcome) -> CallToolResult:
        """Return what is pending and where to decide it, for a client that cannot be asked."""
        return _cannot_ask(mcp_request, PendingPause.of(outcome))

    async def go_on(
        self, context: Context, mcp_request: McpRequest, given: CallToolRequestParams
    ) -> CallToolResult | InputRequiredResult:
        """Handle the repeated request that brings the person's answer."""
        assert given.request_state is not None
        pending = PendingPause.read(given.request_state)
        items = await self._for_forms(context, mcp_request, pending)
        wanted = [item.name for item in items] or [_DECISION]
        responses = {name: answer for name, answer in (given.input_responses or {}).items() if name in wanted}
        answers = {name: answer for name, answer in responses.items() if isinstance(answer, ElicitResult)}
        if len(answers) < len(wanted):
            return await self._ask_for_input(context, mcp_request, pending)
        action = next((answer.action for answer in answers.values() if answer.action != "accept"), "accept")
        content = {name: _only(answer, name) for name, answer in answers.items()} if items else None
        return await self._apply_answer(mcp_request, pending, action, content)

    async def _ask_for_input(
        self, context: Context, mcp_request: McpRequest, pending: PendingPause
    ) -> CallToolResult | InputRequiredResult:
        items = await self._for_forms(context, mcp_request, pending)
        shown: dict[str, Params | None] = {item.name: form([item]) for item in items}
        if not shown:
            shown = {_DECISION: await self._pointer(context, mcp_request, pending)}
        requests = {name: ElicitRequest(params=params) for name, params in shown.items() if params is not None}
        if len(requests) < len(shown):
            return _cannot_ask(mcp_request, pending)
        return InputRequiredResult(input_requests=dict(requests), request_state=pending.state)

    async def _for_forms(self, context: Context, mcp_request: McpRequest, pending: PendingPause) -> Sequence[Question]:
        """Return the questions that can be asked in forms; none for an agent's key, or if the client shows no forms."""
        if (
            pending.kind is not PauseKind.QUESTION
            or mcp_request.principal.agent
            or not ElicitationSupport.of(context.session.client_capabilities).forms
        ):
            return ()
        request = (await self._services.paused_calls.get(mcp_request.tenant, pending.id)).request
        return request.questions if isinstance(request, QuestionRequest) else ()

    async def _pointer(self, context: Context, mcp_request: McpRequest, pending: PendingPause) -> Params | None:
        """Show the person where to decide. Their reaction in the client decides nothing."""
        able = ElicitationSupport.of(context.session.client_capabilities)
        address = pause_url(mcp_request.origin, mcp_request.workspace_id, pending.id)
        if able.links:
            return link(pending, address)
        return confirmation(pending, address, await self._what(mcp_request, pending)) if able.forms else None

    async def _what(self, mcp_request: McpRequest, pending: PendingPause) -> str:
        pause = await self._services.paused_calls.get(mcp_request.tenant, pending.id)
        shown = paused_call_out(pause)
        return _fitting([line.text for line in shown.lines]) if isinstance(shown, ApprovalOut) else pause_summary(pause)

    async def _apply_answer(
        self, mcp_request: McpRequest, pending: PendingPause, action: str, answers: Mapping[str, Any] | None
    ) -> CallToolResult:
        if action != "accept":
            return text_tool_result(
                f"The person did not respond ({action}). {_still_waits(mcp_request, pending)}", is_error=True
            )
        tenant = mcp_request.tenant
        if answers is not None:
            await self._services.paused_calls.answer(tenant, pending.id, answers, via="mcp")
        try:
            async with asyncio.timeout(self._patience):
                # Another node may execute it, so only the row is reliable.
                while (call := await self._services.calls.get(tenant, pending.call_id)).state in _WAITING:  # noqa: ASYNC110
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            return _cannot_ask(mcp_request, pending)
        if call.error is not None:
            return text_tool_result(f"{call.error.get('code')}: {call.error.get('message')}", is_error=True)
        return done(model_result(call.result, call.id).value if mcp_request.principal.agent else call.result)


def _fitting(lines: Sequence[str]) -> str:
    """Return as many lines as fit, and how many do not."""
    ends = accumulate(len(line) + 1 for line in lines)
    shown = sum(end <= _MOST_CHARACTERS for end in ends)
    more = [f"… {len(lines) - shown:,} more lines. The page below shows all of them."] if shown < len(lines) else []
    return "\n".join([*lines[:shown], *more])


def _only(answer: ElicitResult, name: str) -> Any:
    """Return the answer to a form with one field, whatever the client calls the field."""
    content = answer.content or {}
    return content[name] if name in content or len(content) != 1 else next(iter(content.values()))


def _cannot_ask(mcp_request: McpRequest, pending: PendingPause) -> CallToolResult:
    what = "needs a person's approval" if pending.kind is PauseKind.APPROVAL else "needs a person's answer"
    return text_tool_result(f"This call {what} and has not run. {_still_waits(mcp_request, pending)}", is_error=True)


def _still_waits(mcp_request: McpRequest, pending: PendingPause) -> str:
    command, then = {
        PauseKind.APPROVAL: ("approve", "runs after approval; do not repeat it"),
        PauseKind.QUESTION: ("answer", "ends with the answer"),
    }[pending.kind]
    address = pause_url(mcp_request.origin, mcp_request.workspace_id, pending.id)
    return (
        f"{pending.kind.capitalize()} {pending.id} is pending at {address} "
        f"(`toolcrib {command}` lists it). The call {then}; fetch its outcome with call id {pending.call_id}."
    )
