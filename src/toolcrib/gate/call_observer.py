"""Reports how each call ended: to whoever counts calls, and as a span of the trace. Changes nothing about the call."""

from collections.abc import Awaitable, Callable

from toolcrib.core.tool_calls import Outcome
from toolcrib.gate.call_stages import CallRequest
from toolcrib.runtime.traces import is_tracing, span

OnCallEnded = Callable[[CallRequest, Outcome | BaseException], None]


async def observed(
    request: CallRequest, execute: Callable[[CallRequest], Awaitable[Outcome]], on_ended: OnCallEnded | None
) -> Outcome:
    """Execute a call, and report its outcome or the error that it raised."""
    if on_ended is None:
        return await (_traced(request, execute) if is_tracing() else execute(request))
    try:
        outcome = await (_traced(request, execute) if is_tracing() else execute(request))
    except BaseException as error:
        on_ended(request, error)
        raise
    on_ended(request, outcome)
    return outcome


async def _traced(request: CallRequest, execute: Callable[[CallRequest], Awaitable[Outcome]]) -> Outcome:
    # A name without a tool is something that a client or a model made up.
    name = request.tool.name if request.tool else "unknown"
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": name,
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": str(request.caller.call_id),
    }
    with span(f"execute_tool {name}", attributes) as notes:
        outcome = await execute(request)
        notes.note(toolcrib__outcome=outcome.state.value)
        if outcome.error is not None:
            notes.fail(outcome.error.code)
        return outcome
