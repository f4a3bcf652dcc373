"""Calls that wait for a person, told to an MCP client.

A question is put to the person behind the client, if a person's own key is used. An agent's key never answers or
decides anything: whoever holds it is the agent. Its client can only be shown where a person can.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

from mcp.server.context import ServerRequestContext
from mcp.shared.message import ServerMessageMetadata
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    ElicitResult,
    InputRequiredResult,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from toolcrib.domain.ids import ApprovalId, QuestionId
from toolcrib.domain.outcomes import Outcome
from toolcrib.domain.questions import Item
from toolcrib.policy.bounds import bound
from toolcrib.server.auth import tenant_for
from toolcrib.server.mcp.forms import Able, Pending, confirmation, form, link
from toolcrib.server.mcp.shapes import done, said
from toolcrib.server.mcp.visit import Visit
from toolcrib.server.services import Services
from toolcrib.server.waiting import in_brief

# How long a client is kept waiting for a decision, and how often we look whether there is one.
PATIENCE_SECONDS: Final = 50.0
_LOOK_SECONDS: Final = 0.3
_DECISION: Final = "decision"
# How much of what would change is shown in a form; the page shows it all.
_DIFF_BYTES: Final = 4_000
_WAITING: Final = frozenset({"waiting", "running"})

Context = ServerRequestContext[dict[str, Any], Any]
Params = ElicitRequestFormParams | ElicitRequestURLParams


class Asking:
    """Puts what waits to the person behind the client, and waits a while for what they say."""

    def __init__(self, services: Services, *, patience: float = PATIENCE_SECONDS) -> None:
        self._services = services
        self._patience = patience

    async def ask(self, context: Context, visit: Visit, outcome: Outcome) -> CallToolResult | InputRequiredResult:
        pending = Pending.of(outcome)
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

    def cannot_ask(self, visit: Visit, outcome: Outcome) -> CallToolResult:
        """For a client that cannot be asked: what waits, and where."""
        return _cannot_ask(visit, Pending.of(outcome))

    async def go_on(
        self, context: Context, visit: Visit, given: CallToolRequestParams
    ) -> CallToolResult | InputRequiredResult:
        """The same request again, with what the person said."""
        assert given.request_state is not None
        pending = Pending.read(given.request_state)
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
        self, context: Context, visit: Visit, pending: Pending
    ) -> CallToolResult | InputRequiredResult:
        items = await self._for_forms(context, visit, pending)
        shown: dict[str, Params | None] = {item.name: form([item]) for item in items}
        if not shown:
            shown = {_DECISION: await self._pointer(context, visit, pending)}
        requests = {name: ElicitRequest(params=params) for name, params in shown.items() if params is not None}
        if len(requests) < len(shown):
            return _cannot_ask(visit, pending)
        return InputRequiredResult(input_requests=dict(requests), request_state=pending.state)

    async def _for_forms(self, context: Context, visit: Visit, pending: Pending) -> Sequence[Item]:
        """What this client's person can be asked in forms; nothing if they are not to be, or it cannot."""
        if (
            pending.kind != "question"
            or visit.principal.agent
            or not Able.of(context.session.client_capabilities).forms
        ):
            return ()
        tenant = tenant_for(visit.principal, visit.workspace_id)
        return (await self._services.questions.get(tenant, QuestionId(pending.id))).items

    async def _pointer(self, context: Context, visit: Visit, pending: Pending) -> Params | None:
        """Shows the person where they decide. What they do with it here decides nothing."""
        able, address = Able.of(context.session.client_capabilities), pending.link(visit.origin, visit.workspace_id)
        if able.links:
            return link(pending, address)
        return confirmation(pending, address, await self._what(visit, pending)) if able.forms else None

    async def _what(self, visit: Visit, pending: Pending) -> str:
        tenant = tenant_for(visit.principal, visit.workspace_id)
        if pending.kind == "question":
            return in_brief(await self._services.questions.get(tenant, QuestionId(pending.id)))
        approval = await self._services.approvals.get(tenant, ApprovalId(pending.id))
        diffs = "\n".join(str(change["diff"]) for change in approval.changes if change.get("diff"))
        return f"{in_brief(approval)}\n{bound(diffs, limit_bytes=_DIFF_BYTES).value}".rstrip()

    async def _heard(
        self, visit: Visit, pending: Pending, action: str, answers: Mapping[str, Any] | None
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
        return done(call.result)


def _only(answer: ElicitResult, name: str) -> Any:
    """The answer to a form of one field, whatever the client calls it."""
    content = answer.content or {}
    return content[name] if name in content or len(content) != 1 else next(iter(content.values()))


def _cannot_ask(visit: Visit, pending: Pending) -> CallToolResult:
    what = "needs a person's approval" if pending.kind == "approval" else "waits for a person's answer"
    return said(f"This call {what}, and was not done. {_still_waits(visit, pending)}", is_error=True)


def _still_waits(visit: Visit, pending: Pending) -> str:
    command, then = {
        "approval": ("approve", "is carried out once it is allowed; do not repeat it"),
        "question": ("answer", "ends with the answer"),
    }[pending.kind]
    return (
        f"{pending.kind.capitalize()} {pending.id} waits at {pending.link(visit.origin, visit.workspace_id)} "
        f"(`toolcrib {command}` lists it). The call {then}; its outcome is kept as call {pending.call_id}."
    )
