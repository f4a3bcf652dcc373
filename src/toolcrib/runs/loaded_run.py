"""A run in memory while a process executes it: messages, progress of the calls, and what decides the next step."""

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
from toolcrib.policy.model_results import bounded_text, model_result
from toolcrib.runs.next_step import RunSnapshot
from toolcrib.storage.run_steps import RunCallRow
from toolcrib.tools.tool import ToolDefinition


@dataclass(frozen=True)
class CallProgress:
    """A call as its run sees it: its state, its outcome, and the text that the model receives.

    ``begun``: a person approved the call, and it had started when its process died. ``result`` is the full result if it
    comes from the call's row; if it comes from the gate, ``was_truncated`` says whether the gate shortened it.
    """

    id: CallId
    tool: str
    state: RequestedCallState
    result: Any = None
    error: Mapping[str, Any] | None = None
    idempotent: bool = True
    begun: bool = False
    was_truncated: bool | None = None

    @classmethod
    def of(cls, row: RunCallRow) -> Self:
        """Create it from the call's row."""
        return cls(row.id, row.tool, row.state, row.result, row.error, row.idempotent, row.begun)

    @cached_property
    def result_text(self) -> tuple[str, bool]:
        """The text of the outcome that the model receives, and whether it is an error. The same in every request."""
        return bounded_text(self.result, self.error, self.id)

    @cached_property
    def is_cut(self) -> bool:
        """Whether the model received a shortened result."""
        return bool(model_result(self.result, self.id).truncation) if self.was_truncated is None else self.was_truncated


AGENTIC_SECONDS, CHAT_SECONDS = 30 * 60.0, 5 * 60.0
# Estimated characters per token, for text that the provider has not counted yet.
_CHARACTERS_PER_TOKEN = 4


@dataclass
class LoadedRun:
    """A run that this process has claimed. Until the claim ends, only this process writes it, under its epoch."""

    run: Run
    agent: Agent
    mode: SessionMode
    messages: list[SessionMessage]
    calls: dict[CallId, CallProgress]
    violations: Violations
    # Differs from the database's version if the agent, its grants or the session have changed since.
    rules_version: str = ""
    window: int | None = None
    tools: tuple[ToolDefinition, ...] = ()
    # The tool that reads the rest of a result; offered once a result was shortened.
    reads_on: ToolDefinition | None = None
    # Characters added since the provider last counted tokens.
    uncounted_characters: int = 0
    # Loaded just now; nothing was executed since.
    is_fresh: bool = True
    # The model has answered in this process, and its calls were not executed yet.
    has_turned: bool = False
    claimed_at: float = field(default_factory=time.monotonic)

    @property
    def caller(self) -> Caller:
        """The caller of this run's tool calls."""
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
        """The tools that the model is offered now."""
        if self.reads_on is None or not any(
            self._was_cut(call_id) for one in self.messages for call_id in one.call_ids
        ):
            return self.tools
        return (*self.tools, self.reads_on)

    def _was_cut(self, call_id: CallId) -> bool:
        return call_id in self.calls and self.calls[call_id].is_cut

    @property
    def last(self) -> SessionMessage | None:
        """The last message, if there is one."""
        return self.messages[-1] if self.messages else None

    @property
    def planned(self) -> tuple[RequestedCall, ...]:
        """The calls that the model's last message requests."""
        return planned_calls(self.messages, self.calls)

    def snapshot(self) -> RunSnapshot:
        """Return what ``next_step`` needs to decide."""
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
        """The size of the conversation in tokens: the provider's count plus an estimate of what was added since."""
        return self.run.context_tokens + self.uncounted_characters // _CHARACTERS_PER_TOKEN

    def estimate(self) -> None:
        """Estimate what was added since the provider last counted; everything if it never did."""
        uncounted = self.messages if self.run.context_tokens == 0 else self.messages[-1:]
        self.uncounted_characters = sum(self._length(one, with_words=self.run.context_tokens == 0) for one in uncounted)

    def compacted(self, summary: SessionMessage, up_to: int) -> int:
        """Replace the messages up to a position by a summary. Returns the new size in tokens."""
        self.messages = [summary, *(one for one in self.messages if one.position > up_to and one.role != "summary")]
        self.uncounted_characters = 0
        tokens = sum(self._length(one) for one in self.messages) // _CHARACTERS_PER_TOKEN
        self.run = replace(self.run, context_tokens=tokens)
        return tokens

    def _length(self, one: SessionMessage, *, with_words: bool = True) -> int:
        results = sum(len(self.calls[call_id].result_text[0]) for call_id in one.call_ids if call_id in self.calls)
        arguments = sum(len(call["function"]["arguments"]) for call in (one.metadata or {}).get("tool_calls", ()))
        return results + (len(one.content) + arguments if with_words else 0)

    def add_turn(self, messages: SessionMessage, *, context_tokens: int, counted: bool) -> None:
        """Add the model's answer."""
        self.messages.append(messages)
        self.has_turned = True
        self.uncounted_characters = 0 if counted else self.uncounted_characters + len(messages.content)
        context = context_tokens if counted else self.run.context_tokens
        self.run = replace(self.run, turns=self.run.turns + 1, context_tokens=context)

    def record_outcome(self, call: RequestedCall, outcome: Outcome) -> None:
        """Record that a call has ended or waits for a person."""
        state = RequestedCallState.WAITING if outcome.is_waiting else RequestedCallState.ENDED
        error = outcome.error
        error_data = None if error is None else {"code": error.code, "message": error.message, "fields": error.fields}
        self.is_fresh = False
        view = self.calls[call.id] = CallProgress(
            call.id, call.name, state, outcome.result, error_data, was_truncated=bool(outcome.metadata.get("truncated"))
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
        return self.agent.rules.run_timeout or (AGENTIC_SECONDS if self.tools else CHAT_SECONDS)


def planned_calls(
    messages: Sequence[SessionMessage], calls: Mapping[CallId, CallProgress]
) -> tuple[RequestedCall, ...]:
    """Return the calls of the last message with their states, if that message is the model's."""
    if not messages or messages[-1].role != "assistant":
        return ()
    last = messages[-1]
    wire = (last.metadata or {}).get("tool_calls", ())
    return tuple(
        RequestedCall(
            call_id,
            ToolCallId(call["id"]),
            call["function"]["name"],
            call["function"]["arguments"],
            calls[call_id].state if call_id in calls else RequestedCallState.NEW,
            calls[call_id].idempotent if call_id in calls else True,
        )
        for call_id, call in zip(last.call_ids, wire, strict=True)
    )


def compactable(messages: Sequence[SessionMessage]) -> int | None:
    """Return the position up to which a summary may replace the messages, or None if there are too few.

    The current question and everything after it stays. A message's calls stay with their results.
    """
    asked = max((number for number, one in enumerate(messages) if one.role == "user"), default=0)
    # Within a long answer, older turns may be replaced too, except for the last few.
    for cut in (asked, len(messages) - _KEPT):
        if sum(one.role != "summary" for one in messages[: max(cut, 0)]) >= _WORTHWHILE:
            return messages[cut - 1].position
    return None


_KEPT = 6
_WORTHWHILE = 2


def as_message(one: SessionMessage) -> Any:
    """Convert a stored message for providers. A summary becomes a user message."""
    if one.role == "summary":
        return from_stored(StoredMessage("user", f"Summary of the conversation so far:\n{one.content}"))
    return from_stored(StoredMessage(one.role, one.content, dict(one.metadata) if one.metadata else None))
