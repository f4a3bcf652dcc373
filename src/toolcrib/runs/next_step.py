"""Decides the next step of a run. A pure function of the stored state, so every process decides the same."""

from dataclasses import dataclass

from toolcrib.core.runs import RequestedCall, RequestedCallState, RunEnding

# The share of the context window that stays free for the model's answer; below it the run must compact or conclude.
RESERVE = 0.2


@dataclass(frozen=True, slots=True)
class RunSnapshot:
    """Everything that decides the next step.

    ``calls`` are those of the model's last message. ``answered``: the last message is the model's and requests no
    calls. ``concluded``: the model had been told to conclude. ``context``: the used share of the context window, None
    if the window's size is unknown. ``over_budget``: its tokens or its money are used up. ``compacts``: the run
    answers no message, but summarizes the session.
    """

    cancelled: bool = False
    violations: int = 0
    max_violations: int = 0
    overdue: bool = False
    turns: int = 0
    max_turns: int = 200
    answered: bool = False
    concluded: bool = False
    calls: tuple[RequestedCall, ...] = ()
    context: float | None = None
    compactable: bool = False
    over_budget: bool = False
    compacts: bool = False
    reserve: float = RESERVE


@dataclass(frozen=True, slots=True)
class CallModel:
    """Call the model once. To conclude, it gets no tools and is asked to answer with what it has."""

    conclude: bool = False


@dataclass(frozen=True, slots=True)
class ExecuteCalls:
    """Execute these calls: new ones, those that a person has decided, and those that a dead process had started."""

    calls: tuple[RequestedCall, ...]


@dataclass(frozen=True, slots=True)
class WaitForPerson:
    """Wait for a person to decide or answer, or for a child run to end. The run holds no resources meanwhile."""


@dataclass(frozen=True, slots=True)
class CompactHistory:
    """Replace older messages by a summary."""


@dataclass(frozen=True, slots=True)
class EndRun:
    """End the run."""

    end_reason: RunEnding


Step = CallModel | ExecuteCalls | WaitForPerson | CompactHistory | EndRun

_TO_EXECUTE = frozenset({RequestedCallState.NEW, RequestedCallState.BEGUN, RequestedCallState.DECIDED})


def next_step(run: RunSnapshot) -> Step:
    """Return the next step; the most urgent reason comes first."""
    if run.cancelled:
        return EndRun(RunEnding.CANCELLED)
    if run.compacts:
        return _compact_only(run)
    if run.violations > run.max_violations:
        return EndRun(RunEnding.VIOLATION)
    if to_execute := tuple(call for call in run.calls if call.state in _TO_EXECUTE):
        # Past the deadline nothing new starts; ending the run ends its calls.
        return EndRun(RunEnding.DEADLINE) if run.overdue else ExecuteCalls(to_execute)
    if any(call.state is RequestedCallState.WAITING for call in run.calls):
        return WaitForPerson()
    if run.answered:
        return EndRun(_ending_of_an_answer(run))
    if run.overdue:
        return EndRun(RunEnding.DEADLINE)
    return EndRun(RunEnding.BUDGET) if run.over_budget else _ask(run)


def _compact_only(run: RunSnapshot) -> Step:
    if not run.compactable:
        return EndRun(RunEnding.DONE)
    if run.overdue:
        return EndRun(RunEnding.DEADLINE)
    return EndRun(RunEnding.BUDGET) if run.over_budget else CompactHistory()


def _ask(run: RunSnapshot) -> Step:
    if run.turns >= run.max_turns:
        return CallModel(conclude=True)
    if run.context is None or run.context <= 1 - run.reserve:
        return CallModel()
    return CompactHistory() if run.compactable else CallModel(conclude=True)


def _ending_of_an_answer(run: RunSnapshot) -> RunEnding:
    if not run.concluded:
        return RunEnding.DONE
    return RunEnding.TURN_LIMIT if run.turns > run.max_turns else RunEnding.BUDGET
