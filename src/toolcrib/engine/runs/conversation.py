"""What a model is told: the system prompt from what is really offered, the messages, and every call's result."""

from collections.abc import Iterator, Mapping, Sequence

from toolcrib.domain.callers import Agent
from toolcrib.domain.ids import CallId
from toolcrib.domain.messages import Message, SystemMessage, ToolCallId, ToolResultMessage, UserMessage
from toolcrib.domain.runs import CallState, Said
from toolcrib.domain.sessions import Mode
from toolcrib.engine.runs.call_view import CallView
from toolcrib.engine.runs.story import as_message
from toolcrib.tools.tool import ToolDefinition

CONCLUDE = (
    "You have reached the limit of this run: no more tools can be called. "
    "Answer now with what you have, and say what is left undone."
)


def system_prompt(agent: Agent, tools: Sequence[ToolDefinition], mode: Mode) -> str:
    """The agent's own text, then what it is really offered: never a tool too many or too few."""
    parts = [agent.rules.prompt.strip() or f"You are {agent.name}, an assistant that works in a user's workspace."]
    if tools:
        names = "\n".join(f"- {tool.name}: {tool.description}" for tool in tools)
        parts.append(f"You have these tools, and no others:\n{names}")
        parts.append(
            "Everything you change can be undone, and a person may be asked before a call is carried out. "
            "A result that is an error says what to do; do not repeat a call unchanged that was denied."
        )
    else:
        parts.append("You have no tools in this conversation. Answer from what you are told.")
    if mode is Mode.PLAN and tools:
        parts.append(
            "You are in plan mode: look, and write your plan with `plan_write`. To begin building, ask the person with "
            "`ask_user` (name `approval`, buttons Accept and Reject), naming the plan file; once they accepted by "
            "button, call `exit_plan_mode`."
        )
    return "\n\n".join(parts)


def conversation(
    prompt: str, said: Sequence[Said], calls: Mapping[CallId, CallView], *, conclude: bool = False
) -> tuple[Message, ...]:
    """The messages of one request. Every call has its result behind it: none was ever stored without."""
    messages: list[Message] = [SystemMessage(prompt)]
    for one in said:
        messages.append(as_message(one))
        messages.extend(_results(one, calls))
    if conclude:
        messages.append(UserMessage(CONCLUDE))
    return tuple(messages)


def _results(one: Said, calls: Mapping[CallId, CallView]) -> Iterator[Message]:
    for call_id, call in zip(one.call_ids, (one.metadata or {}).get("tool_calls", ()), strict=True):
        view = calls.get(call_id)
        if view is None or view.state is not CallState.ENDED:
            text, failed = "The call was not carried out.", True
        else:
            text, failed = view.told
        yield ToolResultMessage(ToolCallId(call["id"]), text or "(nothing)", is_error=failed)
