"""A run while a process has it in hand: what was said, how far the calls are, and what of it decides the next step."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from toolcrib.domain.callers import Agent, Caller
from toolcrib.domain.errors import Violation
from toolcrib.domain.ids import CallId
from toolcrib.domain.messages import RecordedMessage, ToolCallId, recalled
from toolcrib.domain.outcomes import Outcome
from toolcrib.domain.runs import CallState, PlannedCall, Run, Said
from toolcrib.domain.sessions import Mode
from toolcrib.engine.runs.call_view import CallView
from toolcrib.engine.runs.next_step import Standing
from toolcrib.tools.tool import ToolDefinition

AGENTIC_SECONDS, CHAT_SECONDS = 30 * 60.0, 5 * 60.0
# A token is about so many characters. Only for what the provider has not counted yet.
_CHARACTERS_PER_TOKEN = 4


@dataclass
class Story:
    """Loaded once when a process takes the run; from then on only this process writes it, under its epoch."""

    run: Run
    agent: Agent
    mode: Mode
    said: list[Said]
    calls: dict[CallId, CallView]
    violations: int
    # Differs from the database's when the agent, its grants or the session have changed since.
    stamp: str = ""
    window: int | None = None
    tools: tuple[ToolDefinition, ...] = ()
    # Characters that were added since the provider last counted.
    added: int = 0
    # Loaded a moment ago, and nothing was done since.
    is_fresh: bool = True
    taken_at: float = field(default_factory=time.monotonic)

    @property
    def caller(self) -> Caller:
        """Who makes the calls of this run."""
        run = self.run
        return Caller(
            workspace_id=run.workspace_id,
            user_id=run.user_id,
            agent=self.agent,
            session_id=run.session_id,
            run_id=run.id,
            fence=run.epoch,
            via=run.via,
            mode=self.mode,
        )

    @property
    def last(self) -> Said | None:
        return self.said[-1] if self.said else None

    @property
    def planned(self) -> tuple[PlannedCall, ...]:
        """The calls of the model's last message."""
        return planned_calls(self.said, self.calls)

    def standing(self) -> Standing:
        rules, last = self.agent.rules, self.last
        answered = last is not None and last.role == "assistant" and not last.call_ids
        return Standing(
            cancelled=self.run.cancelled_by is not None,
            violations=self.violations,
            max_violations=rules.max_sandbox_violations,
            overdue=self._seconds > self._allowed_seconds,
            turns=self.run.turns,
            max_turns=rules.max_turns,
            answered=answered,
            concluded=answered and last is not None and bool((last.metadata or {}).get("concluded")),
            calls=self.planned,
            context=self.tokens / self.window if self.window else None,
            compactable=compactable(self.said) is not None,
        )

    @property
    def tokens(self) -> int:
        """What the conversation takes up: as the provider counted it, and an estimate of what came after."""
        return self.run.context_tokens + self.added // _CHARACTERS_PER_TOKEN

    def estimate(self) -> None:
        """What came after the provider last counted, for who takes the run up; all of it, if it never did."""
        uncounted = self.said if self.run.context_tokens == 0 else self.said[-1:]
        self.added = sum(self._length(one, with_words=self.run.context_tokens == 0) for one in uncounted)

    def compacted(self, summary: Said, up_to: int) -> int:
        """A summary stands for what was said up to there; returns what the conversation takes up from now on."""
        self.said = [summary, *(one for one in self.said if one.position > up_to and one.role != "summary")]
        self.added = 0
        tokens = sum(self._length(one) for one in self.said) // _CHARACTERS_PER_TOKEN
        self.run = replace(self.run, context_tokens=tokens)
        return tokens

    def _length(self, one: Said, *, with_words: bool = True) -> int:
        results = sum(len(self.calls[call_id].told[0]) for call_id in one.call_ids if call_id in self.calls)
        arguments = sum(len(call["function"]["arguments"]) for call in (one.metadata or {}).get("tool_calls", ()))
        return results + (len(one.content) + arguments if with_words else 0)

    def turned(self, said: Said, *, context_tokens: int, counted: bool) -> None:
        """The model has answered."""
        self.said.append(said)
        self.added = 0 if counted else self.added + len(said.content)
        context = context_tokens if counted else self.run.context_tokens
        self.run = replace(self.run, turns=self.run.turns + 1, context_tokens=context)

    def ended(self, call: PlannedCall, outcome: Outcome) -> None:
        """A call has ended, or waits."""
        state = CallState.WAITING if outcome.is_waiting else CallState.ENDED
        error = outcome.error
        told = None if error is None else {"code": error.code, "message": error.message, "fields": error.fields}
        self.is_fresh = False
        view = self.calls[call.id] = CallView(call.name, state, outcome.result, told)
        self.violations += isinstance(error, Violation)
        if state is CallState.ENDED:
            self.added += len(view.told[0])

    @property
    def _seconds(self) -> float:
        return self.run.active_ms / 1000 + time.monotonic() - self.taken_at

    @property
    def _allowed_seconds(self) -> float:
        return self.agent.rules.run_seconds or (AGENTIC_SECONDS if self.tools else CHAT_SECONDS)


def planned_calls(said: Sequence[Said], calls: Mapping[CallId, CallView]) -> tuple[PlannedCall, ...]:
    """The calls of the last message, if it is the model's, and how far each is."""
    if not said or said[-1].role != "assistant":
        return ()
    last, fresh = said[-1], CallView("", CallState.NEW)
    wire = (last.metadata or {}).get("tool_calls", ())
    return tuple(
        PlannedCall(
            call_id,
            ToolCallId(call["id"]),
            call["function"]["name"],
            call["function"]["arguments"],
            calls.get(call_id, fresh).state,
            calls.get(call_id, fresh).repeatable,
        )
        for call_id, call in zip(last.call_ids, wire, strict=True)
    )


def compactable(said: Sequence[Said]) -> int | None:
    """Up to which position a summary may stand for what was said; none if there is too little before.

    The present question and all that came of it stays, and so do the calls of a message with their results.
    """
    asked = max((number for number, one in enumerate(said) if one.role == "user"), default=0)
    # Within a long answer, its older turns may give way too, but for the latest few.
    for cut in (asked, len(said) - _KEPT):
        if sum(one.role != "summary" for one in said[: max(cut, 0)]) >= _WORTHWHILE:
            return said[cut - 1].position
    return None


_KEPT = 6
_WORTHWHILE = 2


def as_message(one: Said) -> Any:
    """A stored message in the form that providers are given; a summary is told as the user's."""
    if one.role == "summary":
        return recalled(RecordedMessage("user", f"Summary of the conversation so far:\n{one.content}"))
    return recalled(RecordedMessage(one.role, one.content, dict(one.metadata) if one.metadata else None))
