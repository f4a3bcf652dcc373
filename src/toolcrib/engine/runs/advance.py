"""Carries one run on, step by step, until it ends, waits for a person, or is another process's. Each step is committed
under the run's epoch before the next is thought of, so that dying at any instant loses nothing that was done."""

from dataclasses import replace
from typing import assert_never

import structlog

from toolcrib.domain.callers import Caller
from toolcrib.domain.errors import BadArguments, Forbidden, Superseded, ToolcribError, Unauthenticated
from toolcrib.domain.outcomes import Outcome, OutcomeState
from toolcrib.domain.runs import CallState, Ending, PlannedCall, Run
from toolcrib.domain.sessions import Mode
from toolcrib.engine.approvals import Approvals
from toolcrib.engine.batches import side_by_side
from toolcrib.engine.executor import Executor
from toolcrib.engine.questions import Questions
from toolcrib.engine.runs.access import ModelAccess
from toolcrib.engine.runs.asking import Asking
from toolcrib.engine.runs.call_view import CallView
from toolcrib.engine.runs.compaction import summarised
from toolcrib.engine.runs.ending import Endings
from toolcrib.engine.runs.loading import Stories
from toolcrib.engine.runs.next_step import AskModel, Compact, End, Execute, Wait, next_step
from toolcrib.engine.runs.story import Story
from toolcrib.engine.watchers import Watchers
from toolcrib.policy.modes import EXIT
from toolcrib.providers.registry import Providers
from toolcrib.storage.agents import Agents
from toolcrib.storage.approvals import Approvals as ApprovalRows
from toolcrib.storage.database import Tenant
from toolcrib.storage.health import OperationalError
from toolcrib.storage.runs import Runs
from toolcrib.storage.sessions import Sessions
from toolcrib.tools.call import ToolCall
from toolcrib.tools.registry import Registry

log = structlog.get_logger(__name__)

_OUR_FAULT = "It failed inside the server, whose log says more."


class _NotBegun(Exception):
    """The run is over before this call's turn came."""


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
        self._access = access
        self._providers = providers
        self._executor = executor
        self._approval_rows = approval_rows
        self._live = live
        self._stories = Stories(runs, sessions, agents, access, providers, registry)
        self._asking = Asking(runs, access, providers, live)
        self._endings = Endings(runs, registry, approvals, questions, live)

    async def __call__(self, run: Run) -> None:
        """Raises only what the next try may find mended: that the database is away."""
        try:
            await self._advance(run)
        except Superseded as error:
            log.info("run.superseded", run_id=str(run.id), epoch=run.epoch, error=error.message)
            # If it was only the tree that has another home by now, its process takes the run from here.
            await self._runs.release(run)
        except ToolcribError as error:
            log.warning("run.failed", run_id=str(run.id), code=error.code, error=error.message)
            await self._fail(run, error)
        except OperationalError:
            raise
        except Exception:
            log.exception("run.failed", run_id=str(run.id))
            await self._fail(run, ToolcribError(f"The run cannot go on. {_OUR_FAULT} Send the message again."))

    async def _fail(self, run: Run, error: ToolcribError) -> None:
        try:
            await self._endings.fail(run, error)
        except Superseded:
            log.info("run.superseded", run_id=str(run.id), epoch=run.epoch)

    async def _advance(self, run: Run) -> None:
        story = await self._stories.load(run)
        while True:
            step = next_step(story.standing())
            match step:
                case AskModel(conclude):
                    await self._stories.renew(story)
                    if cut := await self._asking.ask(story, conclude=conclude):
                        log.warning("run.failed", run_id=str(run.id), code=cut.error.code, error=cut.error.message)
                        await self._endings.fail(run, cut.error, turn=cut.turn)
                        return
                case Execute(calls):
                    await self._execute(story, calls)
                case Wait():
                    if await self._runs.wait(story.run, [call.id for call in story.planned]):
                        self._live.wake(run.workspace_id, run.session_id)
                        return
                    await self._look_again(story)
                case Compact():
                    await self._compact(story)
                case End(ending):
                    await self._endings.end(story.run, story.planned, ending, error=_why(ending, story))
                    return
                case _:
                    assert_never(step)

    async def _execute(self, story: Story, calls: tuple[PlannedCall, ...]) -> None:
        """Calls of one message: side by side where they do not touch the same files."""
        asked = [ToolCall(call.name, call.parsed() or {}) for call in calls]
        effects = [self._executor.effects_of(call) for call in asked]

        async def do(number: int) -> Outcome:
            if story.violations > story.agent.rules.max_sandbox_violations:
                # The first one stops the run: what has not begun by then does not begin.
                raise _NotBegun
            outcome = await self._do(story, calls[number], asked[number])
            story.ended(calls[number], outcome)
            return outcome

        failed = False
        for call, outcome in zip(calls, await side_by_side(effects, do), strict=True):
            if isinstance(outcome, _NotBegun):
                continue
            if isinstance(outcome, BaseException):
                if not _is_told(outcome):
                    raise outcome
                failed = True
            elif call.name == EXIT and outcome.succeeded:
                story.mode = Mode.BUILD
        if failed:
            await self._end_what_failed(story, calls, asked)

    async def _do(self, story: Story, call: PlannedCall, asked: ToolCall) -> Outcome:
        caller = replace(story.caller, call_id=call.id)
        if call.state is CallState.DECIDED:
            return await self._carry_on(story, call, caller)
        if call.state is CallState.BEGUN and not call.repeatable:
            return await self._executor.give_up(asked, caller)
        if call.parsed() is None:
            flaw = BadArguments({"arguments": "Not a JSON object. Repeat the call with valid JSON."})
            return await self._executor.fail(asked, caller, flaw)
        return await self._executor.execute(asked, caller)

    async def _carry_on(self, story: Story, call: PlannedCall, caller: Caller) -> Outcome:
        allowed = await self._approval_rows.allowed(Tenant(caller.workspace_id), call.id)
        if allowed is None:
            return Outcome(call.id, OutcomeState.WAITING)
        allowed = replace(allowed, begun_before=story.calls[call.id].begun)
        return await self._executor.carry_on(allowed, story.agent, fence=story.run.epoch)

    async def _end_what_failed(self, story: Story, calls: tuple[PlannedCall, ...], asked: list[ToolCall]) -> None:
        """Something failed as nothing may. What the rows say counts; what they leave open is told as our own fault."""
        await self._look_again(story)
        for call, what in zip(calls, asked, strict=True):
            view = story.calls.get(call.id)
            if view is None or view.state is CallState.BEGUN:
                caller = replace(story.caller, call_id=call.id)
                story.ended(call, await self._executor.fail(what, caller, ToolcribError(_OUR_FAULT)))
        story.violations = await self._runs.violations(story.run)

    async def _look_again(self, story: Story) -> None:
        """Something has happened meanwhile: a person has decided, or stopped the run."""
        rows = await self._runs.calls(story.run, [call.id for call in story.planned])
        story.calls |= {call_id: CallView.of(row) for call_id, row in rows.items()}
        run = await self._runs.get(Tenant(story.run.workspace_id), story.run.id)
        story.run = replace(story.run, cancelled_by=run.cancelled_by)

    async def _compact(self, story: Story) -> None:
        rules = story.agent.rules
        assert rules.provider is not None
        credentials = await self._access.of(story.run.user_id, rules.provider)
        summary, up_to = await summarised(story, self._providers, credentials)
        tokens = story.compacted(summary, up_to)
        position = await self._runs.compact(story.run, summary, up_to, context_tokens=tokens)
        story.said[0] = replace(summary, position=position)
        self._live.wake(story.run.workspace_id, story.run.session_id)


def _why(ending: Ending, story: Story) -> dict[str, str] | None:
    """What a person is told of an ending that they did not choose."""
    match ending:
        case Ending.VIOLATION:
            said = f"Stopped after {story.violations} violations of the sandbox."
            return {"code": "VIOLATION", "message": said}
        case Ending.DEADLINE:
            return {"code": "DEADLINE", "message": "Stopped: the run's time at work was over."}
        case _:
            return None


def _is_told(error: BaseException) -> bool:
    """Whether a model is told of it. Not that the run is another's, or nobody's, that it is being stopped, or that the
    database is away: then nobody knows what was done until it is back."""
    passing = (Superseded, Forbidden, Unauthenticated, OperationalError)
    return isinstance(error, Exception) and not isinstance(error, passing)
