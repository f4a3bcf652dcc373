"""Calls that wait for a person, told to an MCP client.

A question is put to the person behind the client, if a person's own key is used. An agent's key never answers or
decides anything: whoever holds it is the agent. Its client can only be shown where a person can.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
from toolcrib.api.auth.principal import tenant_for
from toolcrib.api.mcp.mcp_request import McpRequest
from toolcrib.api.mcp.mcp_tool_results import done, said
from toolcrib.api.pause_notices import pause_summary, pause_url
from toolcrib.core.errors import BadArguments
from toolcrib.core.ids import ApprovalId, CallId, QuestionId
from toolcrib.core.questions import Question
from toolcrib.core.tool_calls import Outcome
from toolcrib.policy.model_text import model_result
from toolcrib.policy.truncation import truncate

# What waits for a person, as a client can show it: a form for each question, or a link to where it is decided.

_SIMPLE: Final = frozenset({"string", "number", "integer", "boolean"})
# What the protocol's forms know; the answer is checked against the whole schema anyway.
_KEPT: Final = frozenset({"type", "enum", "enumNames", "oneOf", "items", "default"}) | frozenset(
    {"minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems"}
)


@dataclass(frozen=True, slots=True)
class ElicitationSupport:
    """What a client can show its person."""

    forms: bool = False
    links: bool = False

    @classmethod
    def of(cls, said: ClientCapabilities | None) -> "ElicitationSupport":
        elicitation = said.elicitation if said else None
        if elicitation is None:
            return cls()
        # A client that says no more than that it can ask, can show forms.
        return cls(elicitation.form is not None or elicitation.url is None, elicitation.url is not None)


@dataclass(frozen=True, slots=True)
class PendingPause:
    """What a call waits for: ``kind`` is ``approval`` or ``question``."""

    kind: str
    id: UUID
    call_id: CallId

    @classmethod
    def of(cls, outcome: Outcome) -> "PendingPause":
        kind = "approval" if "approval_id" in outcome.metadata else "question"
        return cls(kind, UUID(str(outcome.metadata[f"{kind}_id"])), outcome.call_id)

    @classmethod
    def read(cls, state: str) -> "PendingPause":
        """From what a client sent back. It says only where to look: the key that came with it decides what is seen."""
        try:
            kind, number, call_id = state.split(":")
            if kind not in ("approval", "question"):
                raise ValueError(kind)
            return cls(kind, UUID(number), CallId(UUID(call_id)))
        except ValueError:
            raise BadArguments({"requestState": "Not what this server gave out. Send it back unchanged."}) from None

    @property
    def state(self) -> str:
        return f"{self.kind}:{self.id}:{self.call_id}"

    def link(self, origin: str, workspace_id: UUID) -> str:
        return pause_url(origin, workspace_id, self.id)


def form(items: Sequence[Question]) -> ElicitRequestFormParams | None:
    """One form for all of them, in the simple words that clients know; none if one of them needs more."""
    fields = {item.name: field for item in items if (field := _field(item)) is not None}
    if len(fields) < len(items):
        return None
    return ElicitRequestFormParams(
        message="\n".join(item.question for item in items),
        requested_schema={"type": "object", "properties": fields, "required": list(fields)},
    )


def link(pending: PendingPause, address: str) -> ElicitRequestURLParams:
    what = "decide on" if pending.kind == "approval" else "answer"
    return ElicitRequestURLParams(
        message=f"A person must {what} this in Toolcrib.", url=address, elicitation_id=str(pending.id)
    )


def confirmation(pending: PendingPause, address: str, what: str) -> ElicitRequestFormParams:
    """For clients that show no links: the same in words. To agree to it says only that they have been there."""
    where = "Decide on it" if pending.kind == "approval" else "Answer it"
    return ElicitRequestFormParams(
        message=f"A person must see to this in Toolcrib:\n{what}\n\n{where} at {address}, then continue here.",
        requested_schema={"type": "object", "properties": {}},
    )


def _field(item: Question) -> dict[str, Any] | None:
    if item.schema.get("type") not in _SIMPLE and not _is_choice(item.schema):
        return None
    return {key: value for key, value in item.schema.items() if key in _KEPT} | {"description": item.question}


def _is_choice(schema: Mapping[str, Any]) -> bool:
    """Whether it is a list of some of several given values."""
    items = schema.get("items")
    return schema.get("type") == "array" and isinstance(items, Mapping) and not {"enum", "anyOf"}.isdisjoint(items)


# How long a client is kept waiting for a decision, and how often we look whether there is one.
PATIENCE_SECONDS: Final = 50.0
_LOOK_SECONDS: Final = 0.3
_DECISION: Final = "decision"
# How much of what would change is shown in a form; the page shows it all.
_DIFF_BYTES: Final = 4_000
_WAITING: Final = frozenset({"waiting", "running"})

Context = ServerRequestContext[dict[str, Any], Any]
Params = ElicitRequestFormParams | ElicitRequestURLParams


class Elicitation:
    """Puts what waits to the person behind the client, and waits a while for what they say."""

    def __init__(self, services: ApiServices, *, patience: float = PATIENCE_SECONDS) -> None:
        self._services = services
        self._patience = patience

    async def ask(self, context: Context, visit: McpRequest, outcome: Outcome) -> CallToolResult | InputRequiredResult:
        pending = PendingPause.of(outcome)
        if context.protocol_version in MODERN_PROTOCOL_VERSIONS:
            return await self._ask_for_input(context, visit, pending)
        items = await self._for_forms(context, visit, pending)
        params: Params | None = form(items) if items else await self._pointer(context, visit, pending)
        if params is None:
            return _cannot_ask(visit, pending)
        answer = await context.session.send_request(
            ElicitRequest(params=params),
            ElicitResult,
            metadata=ServerMessageMetadata(related_request_id=context.request_id),
        )
        return await self._heard(visit, pending, answer.action, answer.content if items else None)

    def cannot_ask(self, visit: McpRequest, outcome: Outcome) -> CallToolResult:
        """For a client that cannot be asked: what waits, and where."""
        return _cannot_ask(visit, PendingPause.of(outcome))

    async def go_on(
        self, context: Context, visit: McpRequest, given: CallToolRequestParams
    ) -> CallToolResult | InputRequiredResult:
        """The same request again, with what the person said."""
        assert given.request_state is not None
        pending = PendingPause.read(given.request_state)
        items = await self._for_forms(context, visit, pending)
        wanted = [item.name for item in items] or [_DECISION]
        heard = {name: answer for name, answer in (given.input_responses or {}).items() if name in wanted}
        answers = {name: answer for name, answer in heard.items() if isinstance(answer, ElicitResult)}
        if len(answers) < len(wanted):
            return await self._ask_for_input(context, visit, pending)
        action = next((answer.action for answer in answers.values() if answer.action != "accept"), "accept")
        content = {name: _only(answer, name) for name, answer in answers.items()} if items else None
        return await self._heard(visit, pending, action, content)

    async def _ask_for_input(
        self, context: Context, visit: McpRequest, pending: PendingPause
    ) -> CallToolResult | InputRequiredResult:
        items = await self._for_forms(context, visit, pending)
        shown: dict[str, Params | None] = {item.name: form([item]) for item in items}
        if not shown:
            shown = {_DECISION: await self._pointer(context, visit, pending)}
        requests = {name: ElicitRequest(params=params) for name, params in shown.items() if params is not None}
        if len(requests) < len(shown):
            return _cannot_ask(visit, pending)
        return InputRequiredResult(input_requests=dict(requests), request_state=pending.state)

    async def _for_forms(self, context: Context, visit: McpRequest, pending: PendingPause) -> Sequence[Question]:
        """What this client's person can be asked in forms; nothing if they are not to be, or it cannot."""
        if (
            pending.kind != "question"
            or visit.principal.agent
            or not ElicitationSupport.of(context.session.client_capabilities).forms
        ):
            return ()
        tenant = tenant_for(visit.principal, visit.workspace_id)
        return (await self._services.questions.get(tenant, QuestionId(pending.id))).items

    async def _pointer(self, context: Context, visit: McpRequest, pending: PendingPause) -> Params | None:
        """Shows the person where they decide. What they do with it here decides nothing."""
        able, address = (
            ElicitationSupport.of(context.session.client_capabilities),
            pending.link(visit.origin, visit.workspace_id),
        )
        if able.links:
            return link(pending, address)
        return confirmation(pending, address, await self._what(visit, pending)) if able.forms else None

    async def _what(self, visit: McpRequest, pending: PendingPause) -> str:
        tenant = tenant_for(visit.principal, visit.workspace_id)
        if pending.kind == "question":
            return pause_summary(await self._services.questions.get(tenant, QuestionId(pending.id)))
        approval = await self._services.approvals.get(tenant, ApprovalId(pending.id))
        diffs = "\n".join(str(change["diff"]) for change in approval.changes if change.get("diff"))
        return f"{pause_summary(approval)}\n{truncate(diffs, limit_bytes=_DIFF_BYTES).value}".rstrip()

    async def _heard(
        self, visit: McpRequest, pending: PendingPause, action: str, answers: Mapping[str, Any] | None
    ) -> CallToolResult:
        if action != "accept":
            return said(f"The person did not answer ({action}). {_still_waits(visit, pending)}", is_error=True)
        tenant = tenant_for(visit.principal, visit.workspace_id)
        if answers is not None:
            await self._services.questions.answer(tenant, QuestionId(pending.id), answers, via="mcp")
        try:
            async with asyncio.timeout(self._patience):
                # Another node may decide it: only the database knows.
                while (call := await self._services.calls.get(tenant, pending.call_id)).state in _WAITING:  # noqa: ASYNC110
                    await asyncio.sleep(_LOOK_SECONDS)
        except TimeoutError:
            return _cannot_ask(visit, pending)
        if call.error is not None:
            return said(f"{call.error.get('code')}: {call.error.get('message')}", is_error=True)
        return done(model_result(call.result, call.id).value if visit.principal.agent else call.result)


def _only(answer: ElicitResult, name: str) -> Any:
    """The answer to a form of one field, whatever the client calls it."""
    content = answer.content or {}
    return content[name] if name in content or len(content) != 1 else next(iter(content.values()))


def _cannot_ask(visit: McpRequest, pending: PendingPause) -> CallToolResult:
    what = "needs a person's approval" if pending.kind == "approval" else "waits for a person's answer"
    return said(f"This call {what}, and was not done. {_still_waits(visit, pending)}", is_error=True)


def _still_waits(visit: McpRequest, pending: PendingPause) -> str:
    command, then = {
        "approval": ("approve", "is carried out once it is allowed; do not repeat it"),
        "question": ("answer", "ends with the answer"),
    }[pending.kind]
    return (
        f"{pending.kind.capitalize()} {pending.id} waits at {pending.link(visit.origin, visit.workspace_id)} "
        f"(`toolcrib {command}` lists it). The call {then}; its outcome is kept as call {pending.call_id}."
    )
