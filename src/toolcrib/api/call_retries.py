"""Executes the tool call of a request: a retry with the same idempotency key finds what became of the first attempt."""

from collections.abc import Callable
from dataclasses import replace
from itertools import count

from toolcrib.api.api_services import ApiServices
from toolcrib.core.callers import Caller
from toolcrib.core.errors import AnswerNotKept, KeyInUse, Superseded
from toolcrib.core.idempotency import RequestClaim, current_claim
from toolcrib.core.ids import CallId
from toolcrib.core.tool_calls import Outcome, OutcomeState, ToolCall


async def execute_once(
    services: ApiServices,
    call: ToolCall,
    caller: Caller,
    *,
    part: int | None = None,
    emit: Callable[[str], None] | None = None,
) -> Outcome:
    """Execute a call. Under an idempotency key it has the id of the request's claim, and is committed once.

    Args:
        part: The number of the call among several of one request.
    """
    claim = current_claim()
    if claim is None:
        return await services.executor.execute(call, caller, emit=emit)
    for interrupted in count():
        call_id = claim.effect_id if part is None else claim.part_id(part, interrupted=interrupted)
        caller = replace(caller, call_id=CallId(call_id))
        known = await _earlier_outcome(services, claim, call, caller) if claim.is_retry else None
        if known is None:
            break
        if claim.was_answered or not _ended_without_effect(known):
            return known
        if part is None:
            if not await services.idempotency_keys.renew(claim):
                raise KeyInUse("Another request with this Idempotency-Key is being answered. Try again in a moment.")
            caller = replace(caller, call_id=CallId(claim.effect_id))
            break
    try:
        return await services.executor.execute(call, caller, emit=emit)
    except Superseded:
        # The attempt before was still at work, and faster.
        if (known := await services.lost_calls.stored(caller)) is None:
            raise
        return known


async def _earlier_outcome(
    services: ApiServices, claim: RequestClaim, call: ToolCall, caller: Caller
) -> Outcome | None:
    """Return the outcome of the attempt before, or None if the call can be made again."""
    if not claim.was_answered:
        return await services.lost_calls.after_crash(call, caller)
    known = await services.lost_calls.stored(caller)
    if known is None and not await services.lost_calls.may_repeat(call, caller):
        raise AnswerNotKept("The call was made, and its answer was too large to keep. Look at its effect.")
    return known


def _ended_without_effect(outcome: Outcome) -> bool:
    """Return whether the server stopped, or the client left, before anything was committed."""
    return outcome.state is OutcomeState.DONE and outcome.error is not None and outcome.error.code == "INTERRUPTED"
