"""What a run is to do next. A pure function of its stored state: whoever comes to it finds the same answer."""

from dataclasses import dataclass

from toolcrib.domain.runs import CallState, Ending, PlannedCall

# Of the context window this much is left free for the model's answer; below it the run must make room or conclude.
RESERVE = 0.2


@dataclass(frozen=True, slots=True)
class Standing:
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
    calls: tuple[PlannedCall, ...] = ()
    context: float | None = None
    compactable: bool = False


@dataclass(frozen=True, slots=True)
class AskModel:
    """One turn. To conclude, it is given no tools and told to answer with what it has."""

    conclude: bool = False


@dataclass(frozen=True, slots=True)
class Execute:
    """These calls: new ones, those that a person has decided on, and those that a dead process had begun."""

    calls: tuple[PlannedCall, ...]


@dataclass(frozen=True, slots=True)
class Wait:
    """A person must decide or answer. Nothing is held meanwhile."""


@dataclass(frozen=True, slots=True)
class Compact:
    """Make room: older messages give way to a summary."""


@dataclass(frozen=True, slots=True)
class End:
    ending: Ending


Step = AskModel | Execute | Wait | Compact | End

_TO_EXECUTE = frozenset({CallState.NEW, CallState.BEGUN, CallState.DECIDED})


def next_step(run: Standing) -> Step:
    """The next step, the most urgent reason first."""
    if run.cancelled:
        return End(Ending.CANCELLED)
    if run.violations > run.max_violations:
        return End(Ending.VIOLATION)
    if to_execute := tuple(call for call in run.calls if call.state in _TO_EXECUTE):
        # Past the deadline nothing new is begun; the calls are told so when the run ends.
        return End(Ending.DEADLINE) if run.overdue else Execute(to_execute)
    if any(call.state is CallState.WAITING for call in run.calls):
        return Wait()
    if run.answered:
        return End(_ending_of_an_answer(run))
    if run.overdue:
        return End(Ending.DEADLINE)
    return _ask(run)


def _ask(run: Standing) -> Step:
    if run.turns >= run.max_turns:
        return AskModel(conclude=True)
    if run.context is None or run.context <= 1 - RESERVE:
        return AskModel()
    return Compact() if run.compactable else AskModel(conclude=True)


def _ending_of_an_answer(run: Standing) -> Ending:
    if not run.concluded:
        return Ending.DONE
    return Ending.TURN_LIMIT if run.turns > run.max_turns else Ending.BUDGET
