"""A run while a process has it in hand: what was said, how far the calls are, and what of it decides the next step."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

from toolcrib.core.callers import Agent, Caller, SessionMode
from toolcrib.core.errors import ProtectedPath, SandboxViolation
from toolcrib.core.ids import CallId
from toolcrib.core.messages import StoredMessage, ToolCallId, from_stored
from toolcrib.core.runs import RequestedCall, RequestedCallState, Run, SessionMessage, Violations
from toolcrib.core.tool_calls import Outcome
from toolcrib.policy.model_text import bounded_text, model_result
from toolcrib.runs.next_step import RunSnapshot
from toolcrib.storage.run_steps import RunCallRow
from toolcrib.tools.tool import ToolDefinition

# What is known of a call of a run: how far it is, what came of it, and what the model reads of that.


@dataclass(frozen=True)
class CallProgress:
    """A call, seen by its run. ``begun``: a person has allowed it, and it had begun when its process died.

    ``result`` is whole if it comes from the call's row; ``was_cut`` is what the gate said if it comes from there.
    """

    id: CallId
    tool: str
    state: RequestedCallState
    result: Any = None
    error: Mapping[str, Any] | None = None
    repeatable: bool = True
    begun: bool = False
    was_cut: bool | None = None

    @classmethod
    def of(cls, row: RunCallRow) -> Self:
        return cls(row.id, row.tool, row.state, row.result, row.error, row.repeatable, row.begun)

    @cached_property
    def result_text(self) -> tuple[str, bool]:
        """What a model reads of its outcome, and whether it is an error. The same in every request."""
        return bounded_text(self.result, self.error, self.id)

    @cached_property
    def is_cut(self) -> bool:
        """Whether the model got less than the whole."""
        return bool(model_result(self.result, self.id).cut) if self.was_cut is None else self.was_cut


AGENTIC_SECONDS, CHAT_SECONDS = 30 * 60.0, 5 * 60.0
# A token is about so many characters. Only for what the provider has not counted yet.
_CHARACTERS_PER_TOKEN = 4


@dataclass
class LoadedRun:
    """Loaded once when a process takes the run; from then on only this process writes it, under its epoch."""

    run: Run
    agent: Agent
    mode: SessionMode
    messages: list[SessionMessage]
    calls: dict[CallId, CallProgress]
    violations: Violations
    # Differs from the database's when the agent, its grants or the session have changed since.
    rules_version: str = ""
    window: int | None = None
    tools: tuple[ToolDefinition, ...] = ()
    # Offered beside them once a result was cut.
    reads_on: ToolDefinition | None = None
    # Characters that were added since the provider last counted.
    uncounted_characters: int = 0
    # Loaded a moment ago, and nothing was done since.
    is_fresh: bool = True
    # The model has answered here, and its calls were not tried yet.
    has_turned: bool = False
    claimed_at: float = field(default_factory=time.monotonic)

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
            run_epoch=run.epoch,
            via=run.via,
            mode=self.mode,
        )

    @property
    def offered(self) -> tuple[ToolDefinition, ...]:
        """The tools that the model is shown now."""
        if self.reads_on is None or not any(
            self._was_cut(call_id) for one in self.messages for call_id in one.call_ids
        ):
            return self.tools
        return (*self.tools, self.reads_on)

    def _was_cut(self, call_id: CallId) -> bool:
        return call_id in self.calls and self.calls[call_id].is_cut

    @property
    def last(self) -> SessionMessage | None:
        return self.messages[-1] if self.messages else None

    @property
    def planned(self) -> tuple[RequestedCall, ...]:
        """The calls of the model's last message."""
        return planned_calls(self.messages, self.calls)

    def snapshot(self) -> RunSnapshot:
        rules, last = self.agent.rules, self.last
        answered = last is not None and last.role == "assistant" and not last.call_ids
        return RunSnapshot(
            cancelled=self.run.cancelled_by is not None,
            violations=self.violations.counted,
            max_violations=rules.max_sandbox_violations,
            overdue=self._seconds > self._allowed_seconds,
            turns=self.run.turns,
            max_turns=rules.max_turns,
            answered=answered,
            concluded=answered and last is not None and bool((last.metadata or {}).get("concluded")),
            calls=self.planned,
            context=self.tokens / self.window if self.window else None,
            compactable=compactable(self.messages) is not None,
            reserve=rules.budget_reserve,
        )

    @property
    def tokens(self) -> int:
        """What the conversation takes up: as the provider counted it, and an estimate of what came after."""
        return self.run.context_tokens + self.uncounted_characters // _CHARACTERS_PER_TOKEN

    def estimate(self) -> None:
        """What came after the provider last counted, for who takes the run up; all of it, if it never did."""
        uncounted = self.messages if self.run.context_tokens == 0 else self.messages[-1:]
        self.uncounted_characters = sum(self._length(one, with_words=self.run.context_tokens == 0) for one in uncounted)

    def compacted(self, summary: SessionMessage, up_to: int) -> int:
        """A summary stands for what was said up to there; returns what the conversation takes up from now on."""
        self.messages = [summary, *(one for one in self.messages if one.position > up_to and one.role != "summary")]
        self.uncounted_characters = 0
        tokens = sum(self._length(one) for one in self.messages) // _CHARACTERS_PER_TOKEN
        self.run = replace(self.run, context_tokens=tokens)
        return tokens

    def _length(self, one: SessionMessage, *, with_words: bool = True) -> int:
        results = sum(len(self.calls[call_id].result_text[0]) for call_id in one.call_ids if call_id in self.calls)
        arguments = sum(len(call["function"]["arguments"]) for call in (one.metadata or {}).get("tool_calls", ()))
        return results + (len(one.content) + arguments if with_words else 0)

    def add_turn(self, said: SessionMessage, *, context_tokens: int, counted: bool) -> None:
        """The model has answered."""
        self.messages.append(said)
        self.has_turned = True
        self.uncounted_characters = 0 if counted else self.uncounted_characters + len(said.content)
        context = context_tokens if counted else self.run.context_tokens
        self.run = replace(self.run, turns=self.run.turns + 1, context_tokens=context)

    def record_outcome(self, call: RequestedCall, outcome: Outcome) -> None:
        """A call has ended, or waits."""
        state = RequestedCallState.WAITING if outcome.is_waiting else RequestedCallState.ENDED
        error = outcome.error
        told = None if error is None else {"code": error.code, "message": error.message, "fields": error.fields}
        self.is_fresh = False
        view = self.calls[call.id] = CallProgress(
            call.id, call.name, state, outcome.result, told, was_cut=bool(outcome.metadata.get("cut"))
        )
        if isinstance(error, ProtectedPath):
            self.violations = replace(self.violations, protected=self.violations.protected + 1)
        elif isinstance(error, SandboxViolation):
            self.violations = replace(self.violations, escapes=self.violations.escapes + 1)
        if state is RequestedCallState.ENDED:
            self.uncounted_characters += len(view.result_text[0])

    @property
    def _seconds(self) -> float:
        return self.run.active_ms / 1000 + time.monotonic() - self.claimed_at

    @property
    def _allowed_seconds(self) -> float:
        return self.agent.rules.run_seconds or (AGENTIC_SECONDS if self.tools else CHAT_SECONDS)


def planned_calls(said: Sequence[SessionMessage], calls: Mapping[CallId, CallProgress]) -> tuple[RequestedCall, ...]:
    """The calls of the last message, if it is the model's, and how far each is."""
    if not said or said[-1].role != "assistant":
        return ()
    last = said[-1]
    wire = (last.metadata or {}).get("tool_calls", ())
    return tuple(
        RequestedCall(
            call_id,
            ToolCallId(call["id"]),
            call["function"]["name"],
            call["function"]["arguments"],
            calls[call_id].state if call_id in calls else RequestedCallState.NEW,
            calls[call_id].repeatable if call_id in calls else True,
        )
        for call_id, call in zip(last.call_ids, wire, strict=True)
    )


def compactable(said: Sequence[SessionMessage]) -> int | None:
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


def as_message(one: SessionMessage) -> Any:
    """A stored message in the form that providers are given; a summary is told as the user's."""
    if one.role == "summary":
        return from_stored(StoredMessage("user", f"Summary of the conversation so far:\n{one.content}"))
    return from_stored(StoredMessage(one.role, one.content, dict(one.metadata) if one.metadata else None))
