"""The next step of a run for every state: a complete table, and invariants over all of it."""

from dataclasses import replace
from functools import cache
from itertools import product

from toolcrib.core.ids import CallId, new_id
from toolcrib.core.messages import ToolCallId
from toolcrib.core.runs import RequestedCall, RequestedCallState, RunEnding
from toolcrib.runs.next_step import (
    CallModel,
    CompactHistory,
    EndRun,
    ExecuteCalls,
    RunSnapshot,
    WaitForPerson,
    next_step,
)


def call(state: RequestedCallState) -> RequestedCall:
    return RequestedCall(CallId(new_id()), ToolCallId("c"), "read", "{}", state)


@cache
def all_snapshots() -> list[RunSnapshot]:
    # The calls of a snapshot are compared by state only, so one call for each state is enough.
    calls = {state: call(state) for state in RequestedCallState}
    return [
        RunSnapshot(
            cancelled=cancelled,
            violations=violations,
            max_violations=1,
            overdue=overdue,
            turns=turns,
            max_turns=3,
            answered=answered and not states,
            concluded=concluded and answered and not states,
            calls=tuple(calls[state] for state in states),
            context=context,
            compactable=can_compact,
        )
        for cancelled, violations, overdue, turns, answered, concluded, context, can_compact in product(
            (False, True),
            (0, 1, 2),
            (False, True),
            (0, 2, 3, 4),
            (False, True),
            (False, True),
            (None, 0.1, 0.79, 0.81, 1.2),
            (False, True),
        )
        for states in [(), *product(RequestedCallState, repeat=1), *product(RequestedCallState, repeat=2)]
    ]


def test_a_cancelled_run_only_ends() -> None:
    for run in all_snapshots():
        assert (next_step(run) == EndRun(RunEnding.CANCELLED)) is run.cancelled


def test_too_many_violations_end_a_run_unless_it_was_cancelled() -> None:
    for run in all_snapshots():
        expected = not run.cancelled and run.violations > run.max_violations
        assert (next_step(run) == EndRun(RunEnding.VIOLATION)) is expected


def test_the_model_is_called_only_when_every_call_has_ended() -> None:
    for run in all_snapshots():
        if isinstance(next_step(run), CallModel | CompactHistory):
            assert all(one.state is RequestedCallState.ENDED for one in run.calls)
            assert not run.answered


def test_executable_calls_run_before_the_run_waits_for_a_person() -> None:
    for run in all_snapshots():
        step = next_step(run)
        states = {one.state for one in run.calls}
        if isinstance(step, WaitForPerson):
            assert states <= {RequestedCallState.WAITING, RequestedCallState.ENDED}
            assert RequestedCallState.WAITING in states
        if isinstance(step, ExecuteCalls):
            assert {one.state for one in step.calls} <= {
                RequestedCallState.NEW,
                RequestedCallState.BEGUN,
                RequestedCallState.DECIDED,
            }
            assert not run.overdue


def test_an_overdue_run_starts_nothing_new() -> None:
    for run in all_snapshots():
        if run.overdue:
            assert not isinstance(next_step(run), CallModel | CompactHistory | ExecuteCalls)


def test_beyond_its_turn_limit_a_run_only_concludes() -> None:
    for run in all_snapshots():
        if run.turns >= run.max_turns and isinstance(step := next_step(run), CallModel | CompactHistory):
            assert step == CallModel(conclude=True)


def test_a_full_context_is_compacted_or_the_run_concludes() -> None:
    for run in all_snapshots():
        step = next_step(run)
        full = run.context is not None and run.context > 0.8
        if isinstance(step, CompactHistory):
            assert full
            assert run.compactable
        if step == CallModel():
            assert not full


def test_every_final_answer_ends_the_run() -> None:
    done = RunSnapshot(answered=True, turns=2)
    assert next_step(done) == EndRun(RunEnding.DONE)
    assert next_step(replace(done, concluded=True, turns=201)) == EndRun(RunEnding.TURN_LIMIT)
    assert next_step(replace(done, concluded=True)) == EndRun(RunEnding.BUDGET)
    for run in all_snapshots():
        if run.answered:
            assert isinstance(next_step(run), EndRun)


def test_the_loop_ends_whatever_the_model_does() -> None:
    """A model that calls a tool in every turn is called at most once more than the turn limit."""
    run, asked = RunSnapshot(max_turns=5), 0
    while not isinstance(step := next_step(run), EndRun):
        assert isinstance(step, CallModel)
        asked += 1
        ended = () if step.conclude else (call(RequestedCallState.ENDED),)
        run = replace(run, turns=run.turns + 1, calls=ended, answered=step.conclude, concluded=step.conclude)
    assert asked == 6
    assert step == EndRun(RunEnding.TURN_LIMIT)


def test_a_run_that_only_compacts_calls_no_model_for_an_answer_and_ends() -> None:
    asked = RunSnapshot(compacts=True, compactable=True, answered=True, turns=0)
    assert next_step(asked) == CompactHistory()
    assert next_step(replace(asked, compactable=False)) == EndRun(RunEnding.DONE)
    assert next_step(replace(asked, over_budget=True)) == EndRun(RunEnding.BUDGET)
    assert next_step(replace(asked, overdue=True)) == EndRun(RunEnding.DEADLINE)
    assert next_step(replace(asked, cancelled=True)) == EndRun(RunEnding.CANCELLED)
