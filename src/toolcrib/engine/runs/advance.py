"""Carries one run on, step by step, until it ends, waits for a person, or is another process's. Each step is committed
under the run's epoch before the next is thought of, so that dying at any instant loses nothing that was done."""

import asyncio
from contextlib import aclosing
from dataclasses import replace
from typing import Any, assert_never

import structlog

from toolcrib.domain.callers import Caller
from toolcrib.domain.errors import (
    BadArguments,
    Forbidden,
    Interrupted,
    NotFound,
    ProviderError,
    Superseded,
    ToolcribError,
    Unauthenticated,
)
from toolcrib.domain.events import Delta, DeltaType, EventType
from toolcrib.domain.ids import MessageId, new_id
from toolcrib.domain.messages import AssistantMessage, recorded
from toolcrib.domain.messages import ToolCall as WireCall
from toolcrib.domain.outcomes import Outcome, OutcomeState
from toolcrib.domain.runs import CallState, Ending, PlannedCall, Run, Said
from toolcrib.domain.sessions import Mode
from toolcrib.domain.streams import Reception, TextDelta, ThinkingDelta
from toolcrib.engine.approvals import Approvals
from toolcrib.engine.batches import side_by_side
from toolcrib.engine.executor import Executor
from toolcrib.engine.questions import Questions
from toolcrib.engine.runs.access import ModelAccess
from toolcrib.engine.runs.compaction import summarised
from toolcrib.engine.runs.conversation import conversation, result_text, system_prompt
from toolcrib.engine.runs.next_step import AskModel, Compact, End, Execute, Wait, next_step
from toolcrib.engine.runs.story import CallView, Story
from toolcrib.engine.watchers import Watchers
from toolcrib.policy.modes import EXIT, offered_in
from toolcrib.providers.provider import ModelRequest, ToolChoice
from toolcrib.providers.registry import Providers
from toolcrib.storage.agents import Agents
from toolcrib.storage.approvals import Approvals as ApprovalRows
from toolcrib.storage.database import Tenant
from toolcrib.storage.runs import Runs
from toolcrib.storage.sessions import Sessions
from toolcrib.tools.call import ToolCall
from toolcrib.tools.registry import Registry
from toolcrib.tools.tool import ToolDefinition

log = structlog.get_logger(__name__)


class Advance:
    """What carrying a run on takes. Holds nothing of any run."""

    def __init__(
        self,
        *,
        runs: Runs,
        sessions: Sessions,
        agents: Agents,
        access: ModelAccess,
        providers: Providers,
        registry: Registry,
        executor: Executor,
        approvals: Approvals,
        approval_rows: ApprovalRows,
        questions: Questions,
        live: Watchers,
    ) -> None:
        self._runs = runs
        self._sessions = sessions
        self._agents = agents
        self._access = access
        self._providers = providers
        self._registry = registry
        self._executor = executor
        self._approvals = approvals
        self._approval_rows = approval_rows
        self._questions = questions
        self._live = live
        self._windows: dict[tuple[str, str], int | None] = {}

    async def __call__(self, run: Run) -> None:
        try:
            await self._advance(run)
        except Superseded:
            log.info("run.superseded", run_id=str(run.id), epoch=run.epoch)
        except (ToolcribError, NotFound) as error:
            await self._fail(run, error)

    async def _advance(self, run: Run) -> None:
        story = await self._load(run)
        while True:
            step = next_step(story.standing())
            match step:
                case AskModel(conclude):
                    await self._ask(story, conclude=conclude)
                case Execute(calls):
                    await self._execute(story, calls)
                case Wait():
                    if await self._runs.wait(story.run, [call.id for call in story.planned]):
                        self._wake(run)
                        return
                    await self._look_again(story)
                case Compact():
                    await self._compact(story)
                case End(ending):
                    await self._end(story, ending)
                    return
                case _:
                    assert_never(step)

    async def _load(self, run: Run) -> Story:
        tenant = Tenant(run.workspace_id)
        if run.agent_id is None:
            raise NotFound("This session has no agent, so there is no model to answer. Give it one.")
        agent = (await self._agents.get(tenant, run.agent_id)).as_caller
        session = await self._sessions.get(tenant, run.session_id)
        if session.trust is not None:
            agent = replace(agent, rules=agent.rules.model_copy(update={"trust": session.trust}))
        said = await self._runs.conversation(run)
        ids = [call_id for one in said for call_id in one.call_ids]
        rows = await self._runs.calls(run, ids)
        calls = {
            call_id: CallView(row.tool, row.state, row.result, row.error, repeatable=row.repeatable)
            for call_id, row in rows.items()
        }
        story = Story(run, agent, session.mode, said, calls, await self._runs.violations(run))
        story.offers_tools = bool(self._offered(story))
        story.window = await self._window(story)
        return story

    async def _ask(self, story: Story, *, conclude: bool) -> None:
        """One turn of the model: streamed to whoever watches, and committed whole or, if it was cut, as text only."""
        run, rules = story.run, story.agent.rules
        if not rules.provider or not rules.model:
            raise BadArguments({"agent": f"Agent {story.agent.name!r} names no `provider` and `model`. Add them."})
        tools = self._offered(story)
        prompt = system_prompt(story.agent, () if conclude else tools, story.mode)
        request = ModelRequest(
            rules.model,
            conversation(prompt, story.said, story.calls, conclude=conclude),
            tuple(tools),
            ToolChoice.NONE if conclude else ToolChoice.AUTO,
            max_output_tokens=rules.max_output_tokens,
            temperature=rules.temperature,
            thinking_tokens=rules.thinking_tokens,
            context_window=rules.context_window,
        )
        message_id = MessageId(new_id())
        reception = Reception()
        try:
            await self._stream(story, request, message_id, reception)
        except asyncio.CancelledError:
            if reception.message().text:
                await asyncio.shield(self._keep(story, message_id, _cut(reception), reception))
            raise
        if reception.error is not None:
            if reception.message().text:
                await self._keep(story, message_id, _cut(reception), reception)
            raise reception.error
        message = reception.message()
        if conclude:
            message = replace(
                message, tool_calls=(), text=message.text or f"Stopped after {run.turns} iterations.", note=None
            )
        await self._keep(story, message_id, message, reception, concluded=conclude)

    async def _stream(self, story: Story, request: ModelRequest, message_id: MessageId, reception: Reception) -> None:
        run, rules = story.run, story.agent.rules
        assert rules.provider is not None
        credentials = await self._access.of(run.user_id, rules.provider)
        started = {"messageId": message_id, "runId": run.id, "model": request.model, "attempt": run.epoch}
        await self._runs.record_turn(run, _turn(story, events=[(EventType.STREAM_START, started)], counts=0))
        self._wake(run)
        said = {DeltaType.TEXT: 0, DeltaType.THINKING: 0}
        events = self._providers.turn(rules.provider, request, credentials, seconds=rules.turn_seconds)
        async with aclosing(events):
            async for event in events:
                reception.take(event)
                if isinstance(event, TextDelta | ThinkingDelta) and event.text:
                    kind = DeltaType.TEXT if isinstance(event, TextDelta) else DeltaType.THINKING
                    self._live.delta(
                        Delta(
                            run.workspace_id,
                            run.session_id,
                            kind,
                            str(message_id),
                            event.text,
                            attempt=run.epoch,
                            offset=said[kind],
                        )
                    )
                    said[kind] += len(event.text)

    async def _keep(
        self,
        story: Story,
        message_id: MessageId,
        message: AssistantMessage,
        reception: Reception,
        *,
        concluded: bool = False,
    ) -> None:
        """Commits what the model said. Its calls get our ids here, so that each is known before it is begun."""
        record = recorded(message)
        metadata: dict[str, Any] = dict(record.metadata or {})
        for call in metadata.get("tool_calls", ()):
            call["call_id"] = str(new_id())
        if concluded:
            metadata["concluded"] = True
        if reception.finish is None:
            metadata["cut"] = True
        said = Said(message_id, 0, story.run.id, "assistant", record.content, metadata or None)
        usage, counted = reception.usage, reception.usage.input_tokens > 0
        context = usage.input_tokens + usage.output_tokens if counted else story.tokens
        payload = {
            "messageId": message_id,
            "runId": story.run.id,
            "content": record.content,
            "thinking": message.thinking or None,
            "toolCalls": [
                {"toolId": call["call_id"], "toolName": call["function"]["name"]}
                for call in metadata.get("tool_calls", ())
            ],
            "finishReason": reception.finish.reason if reception.finish else "cut",
            "usage": {
                "inputTokens": usage.input_tokens,
                "outputTokens": usage.output_tokens,
                "contextTokens": context,
                "contextWindow": story.window,
            },
        }
        turn = _turn(
            story,
            message_id=message_id,
            content=record.content,
            metadata=metadata or None,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            context_tokens=context,
            events=[(EventType.STREAM_END, payload)],
        )
        await self._runs.record_turn(story.run, turn)
        position = story.last.position + 1 if story.last else 1
        story.turned(replace(said, position=position), context_tokens=context, counted=counted)
        self._wake(story.run)

    async def _execute(self, story: Story, calls: tuple[PlannedCall, ...]) -> None:
        """Calls of one message: side by side where they do not touch the same files."""
        asked = [ToolCall(call.name, _arguments(call) or {}) for call in calls]
        effects = [self._executor.effects_of(call) for call in asked]

        async def do(number: int) -> Outcome:
            return await self._do(story, calls[number], asked[number])

        for call, outcome in zip(calls, await side_by_side(effects, do), strict=True):
            if isinstance(outcome, BaseException) and not _is_told(outcome):
                raise outcome
            if isinstance(outcome, BaseException):
                # The gate has written it down as our own fault; the model is told so and the loop goes on.
                outcome = Outcome(call.id, OutcomeState.DONE, error=ToolcribError("The call failed inside the server."))
            text, _ = result_text(outcome.result, None)
            story.ended(call, outcome, text=text)
            if call.name == EXIT and outcome.succeeded:
                story.mode = Mode.BUILD

    async def _do(self, story: Story, call: PlannedCall, asked: ToolCall) -> Outcome:
        caller = replace(story.caller, call_id=call.id)
        if call.state is CallState.DECIDED:
            return await self._carry_on(story, call, caller)
        if call.state is CallState.BEGUN and not story.calls[call.id].repeatable:
            return await self._executor.give_up(asked, caller)
        if _arguments(call) is None:
            flaw = BadArguments({"arguments": "Not a JSON object. Repeat the call with valid JSON."})
            return await self._executor.fail(asked, caller, flaw)
        return await self._executor.execute(asked, caller)

    async def _carry_on(self, story: Story, call: PlannedCall, caller: Caller) -> Outcome:
        allowed = await self._approval_rows.allowed(Tenant(caller.workspace_id), call.id)
        if allowed is None:
            await self._look_again(story)
            return Outcome(call.id, OutcomeState.WAITING)
        return await self._executor.carry_on(allowed, story.agent, fence=story.run.epoch)

    async def _look_again(self, story: Story) -> None:
        """A person has decided while we were about to wait."""
        rows = await self._runs.calls(story.run, [call.id for call in story.planned])
        for call_id, row in rows.items():
            story.calls[call_id] = CallView(row.tool, row.state, row.result, row.error, repeatable=row.repeatable)
        run = await self._runs.get(Tenant(story.run.workspace_id), story.run.id)
        story.run = replace(story.run, cancelled_by=run.cancelled_by)

    async def _compact(self, story: Story) -> None:
        rules = story.agent.rules
        assert rules.provider is not None
        credentials = await self._access.of(story.run.user_id, rules.provider)
        try:
            summary, up_to = await summarised(story, self._providers, credentials)
        except ProviderError as error:
            log.warning("run.summary_failed", run_id=str(story.run.id), error=error.message)
            raise
        await self._runs.compact(story.run, summary, up_to)
        story.said = [summary, *(one for one in story.said if one.position > up_to)]
        story.run = replace(story.run, context_tokens=0)
        story.added = sum(
            len(one.content) + sum(len(result_text(v.result, v.error)[0]) for v in _views(one, story))
            for one in story.said
        )

    async def _end(self, story: Story, ending: Ending) -> None:
        """No call stays without an end: what was not begun, or waits, is told that the run is over."""
        why = Interrupted(f"The run ended ({ending}) before this was carried out.")
        for call in story.planned:
            caller = replace(story.caller, call_id=call.id)
            match call.state:
                case CallState.NEW | CallState.BEGUN:
                    await self._executor.fail(ToolCall(call.name, _arguments(call) or {}), caller, why)
                case CallState.WAITING | CallState.DECIDED:
                    await self._approvals.withdraw_for_run(Tenant(caller.workspace_id), call.id)
                    await self._questions.withdraw_for_run(Tenant(caller.workspace_id), call.id)
                case CallState.ENDED:
                    pass
        error = None
        if ending is Ending.VIOLATION:
            error = {"code": "VIOLATION", "message": f"Stopped after {story.violations} violations of the sandbox."}
        if ending is Ending.DEADLINE:
            error = {"code": "DEADLINE", "message": "Stopped: the run's time at work was over."}
        await self._runs.end(story.run, ending, error=error)
        self._wake(story.run)

    async def _fail(self, run: Run, error: ToolcribError) -> None:
        log.warning("run.failed", run_id=str(run.id), code=error.code, error=error.message)
        told = {"code": error.code, "message": error.message, "fields": error.fields}
        try:
            await self._runs.end(run, Ending.FAILED, error=told)
        except Superseded:
            return
        self._wake(run)

    def _offered(self, story: Story) -> list[ToolDefinition]:
        tools = self._registry.list_for_scope(story.agent.rules)
        return [tool.definition() for tool in tools if offered_in(story.mode, tool)]

    async def _window(self, story: Story) -> int | None:
        """The model's context window: as the agent says, or as the provider does; unknown is no limit."""
        rules = story.agent.rules
        if rules.context_window or not rules.provider or not rules.model:
            return rules.context_window
        key = (rules.provider, rules.model)
        if key not in self._windows:
            try:
                credentials = await self._access.of(story.run.user_id, rules.provider)
                provider = await self._providers.get(rules.provider)
                models = await provider.list_models(credentials)
            except ToolcribError:
                return None
            self._windows[key] = next((model.context_window for model in models if model.id == rules.model), None)
        return self._windows[key]

    def _wake(self, run: Run) -> None:
        self._live.wake(run.workspace_id, run.session_id)


def _turn(story: Story, *, events: list[tuple[EventType, dict[str, Any]]], **facts: Any) -> dict[str, Any]:
    """What ``toolcrib.record_turn`` takes."""
    return {
        "message_id": None,
        "content": "",
        "metadata": None,
        "input_tokens": 0,
        "output_tokens": 0,
        "context_tokens": story.run.context_tokens,
        "counts": 1,
        "events": [{"type": type_, "payload": payload} for type_, payload in events],
        **facts,
    }


def _is_told(error: BaseException) -> bool:
    """Whether a model is told of it. Not that the run is another's, or nobody's, or that it is being stopped."""
    return isinstance(error, Exception) and not isinstance(error, Superseded | Forbidden | Unauthenticated)


def _cut(reception: Reception) -> AssistantMessage:
    """What was received of a message that never became whole: its text, and none of its calls."""
    message = reception.message()
    return AssistantMessage(message.text, message.thinking)


def _arguments(call: PlannedCall) -> dict[str, Any] | None:
    return WireCall(call.wire_id, call.name, call.arguments).parsed()


def _views(one: Said, story: Story) -> list[CallView]:
    return [story.calls[call_id] for call_id in one.call_ids if call_id in story.calls]
