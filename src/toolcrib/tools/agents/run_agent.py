"""Gives a task to another agent, or to the same one, in a child run. The call waits for its end as a row."""

from typing import Annotated

from pydantic import Field, StringConstraints

from toolcrib.core.agents import TrustLevel
from toolcrib.core.callers import Narrowing, SessionMode
from toolcrib.core.errors import BadArguments, PermissionDenied, ToolFailed
from toolcrib.core.runs import RunEnding
from toolcrib.core.tool_calls import ToolCategory
from toolcrib.storage.child_runs import ChildAgent, ChildRun, ChildRunStore
from toolcrib.tools.context import ToolContext
from toolcrib.tools.tool import ToolArguments, built_in, no_effects
from toolcrib.tools.tool_results import IdText, ToolResult

# A child run that ended in one of these ways has an answer, even if it had to be brief.
_ANSWERED = frozenset({RunEnding.DONE, RunEnding.TURN_LIMIT, RunEnding.BUDGET})
_TITLE_CHARACTERS = 80


class RunAgentArguments(ToolArguments):
    task: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=100_000)] = Field(
        description="What to do, with everything that the agent must know: it does not see this conversation."
    )
    agent: str | None = Field(
        default=None, max_length=200, description="Name or id of the agent. By default, yourself in a new context."
    )
    tools: list[str] | None = Field(
        default=None, max_length=500, description="The only tools that it may use. By default, all that you both have."
    )
    trust: TrustLevel | None = Field(
        default=None, description="Ask a person more often than you would have to; never less often."
    )
    title: str | None = Field(default=None, max_length=200, description="Short name of the task, for people.")


class RunAgentResult(ToolResult):
    text: str
    agent: str
    end_reason: str
    session_id: IdText
    turns: int
    input_tokens: int
    output_tokens: int


@built_in(
    "agents",
    category=ToolCategory.EXEC,
    effects=no_effects,
    checks_membership=False,
    read_only=False,
    # The child run is in plan mode too.
    modes=frozenset(SessionMode),
    exposed_over_mcp=False,
    result=RunAgentResult,
    requires=ChildRunStore,
)
async def run_agent(arguments: RunAgentArguments, context: ToolContext) -> RunAgentResult | None:
    """Give a task to another agent, or to yourself with an empty context, and get its final answer.

    It works on the same files, with at most your permissions. Start several in one turn to let them work in parallel.
    """
    caller, child_runs = context.caller, context.resource(ChildRunStore)
    if caller.agent is None or caller.run_id is None or caller.session_id is None:
        raise PermissionDenied(
            "Only an agent can call `run_agent`, in a run. Send an agent a message in a session instead."
        )
    # The call is executed again after a crash, and when the child run has ended.
    child = await child_runs.of_call(caller)
    if child is not None and child.end_reason is not None:
        return _result(child, child.end_reason)
    if child is not None:
        context.remarks.child_session_id = child.session_id
        return None
    if arguments.trust is not None and arguments.trust.exceeds(caller.agent.rules.trust):
        raise BadArguments({"trust": f"Your own trust is {caller.agent.rules.trust}. Choose that or a lower level."})
    agent = _chosen(arguments.agent, await child_runs.agents(caller), context)
    narrowing = Narrowing(None if arguments.tools is None else tuple(arguments.tools), arguments.trust)
    title = arguments.title or arguments.task.splitlines()[0][:_TITLE_CHARACTERS]
    context.remarks.child_session_id = await child_runs.create(
        caller, agent, arguments.task, title=title, narrowing=narrowing
    )
    return None


def _chosen(wanted: str | None, agents: list[ChildAgent], context: ToolContext) -> ChildAgent:
    wanted = wanted or str(context.caller.agent_id)
    for agent in agents:
        if wanted in (agent.name, str(agent.id)):
            return agent
    names = ", ".join(f"`{agent.name}`" for agent in agents)
    raise BadArguments({"agent": f"There is no agent `{wanted}` in this workspace. Expected one of {names}."})


def _result(child: ChildRun, end_reason: RunEnding) -> RunAgentResult:
    if end_reason not in _ANSWERED or child.error_message:
        why = f": {child.error_message}" if child.error_message else "."
        last = f" Its last message: {child.text}" if child.text else ""
        raise ToolFailed(
            f"The child run of agent {child.agent_name!r} ended without an answer ({end_reason}){why}"
            f"{last} What it changed stays; its session is {child.session_id}."
        )
    return {
        "text": child.text,
        "agent": child.agent_name,
        "end_reason": end_reason,
        "session_id": str(child.session_id),
        "turns": child.turns,
        "input_tokens": child.input_tokens,
        "output_tokens": child.output_tokens,
    }
