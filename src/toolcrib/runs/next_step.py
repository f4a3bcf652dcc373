"""What a run is to do next. A pure function of its stored state: whoever comes to it finds the same answer."""

from dataclasses import dataclass

from toolcrib.core.runs import RequestedCall, RequestedCallState, RunEnding

# Of the context window this much is left free for the model's answer; below it the run must make room or conclude.
RESERVE = 0.2


@dataclass(frozen=True, slots=True)
class RunSnapshot:
    """Everything that decides. ``calls`` are those of the model's last message, none if it asked for none.

    ``answered``: the last message is the model's, and asks for nothing. ``concluded``: it had been told to conclude.
    ``context``: the share of the context window that is taken, none if the window is not known.
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
    reserve: float = RESERVE


@dataclass(frozen=True, slots=True)
class CallModel:
    """One turn. To conclude, it is given no tools and told to answer with what it has."""

    conclude: bool = False


@dataclass(frozen=True, slots=True)
class ExecuteCalls:
    """These calls: new ones, those that a person has decided on, and those that a dead process had begun."""

    calls: tuple[RequestedCall, ...]


@dataclass(frozen=True, slots=True)
class WaitForPerson:
    """A person must decide or answer. Nothing is held meanwhile."""


@dataclass(frozen=True, slots=True)
class CompactHistory:
    """Make room: older messages give way to a summary."""


@dataclass(frozen=True, slots=True)
class EndRun:
    ending: RunEnding


Step = CallModel | ExecuteCalls | WaitForPerson | CompactHistory | EndRun

_TO_EXECUTE = frozenset({RequestedCallState.NEW, RequestedCallState.BEGUN, RequestedCallState.DECIDED})


def next_step(run: RunSnapshot) -> Step:
    """The next step, the most urgent reason first."""
    if run.cancelled:
        return EndRun(RunEnding.CANCELLED)
    if run.violations > run.max_violations:
        return EndRun(RunEnding.VIOLATION)
    if to_execute := tuple(call for call in run.calls if call.state in _TO_EXECUTE):
        # Past the deadline nothing new is begun; the calls are told so when the run ends.
        return EndRun(RunEnding.DEADLINE) if run.overdue else ExecuteCalls(to_execute)
    if any(call.state is RequestedCallState.WAITING for call in run.calls):
        return WaitForPerson()
    if run.answered:
        return EndRun(_ending_of_an_answer(run))
    if run.overdue:
        return EndRun(RunEnding.DEADLINE)
    return _ask(run)


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
