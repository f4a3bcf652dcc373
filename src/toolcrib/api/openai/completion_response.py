"""Responses for OpenAI clients: streams a session until the message is answered or a person must decide.

A completion is only text, so everything that the person must know is part of it.
"""

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic_core import to_json

from toolcrib.api.api_services import ApiServices
from toolcrib.api.pause_notices import notice
from toolcrib.api.session_stream import EventStream
from toolcrib.core.errors import AnswerRefused, OutputLimit, ToolcribError
from toolcrib.core.events import WITHDRAWN, Delta, DeltaType, Event, EventType
from toolcrib.core.paused_calls import PauseKind
from toolcrib.core.runs import Run, RunEnding, RunState
from toolcrib.events import Subscription
from toolcrib.storage.database import Tenant

_FINISH: Final = {RunEnding.TURN_LIMIT: "length", RunEnding.BUDGET: "length", RunEnding.DEADLINE: "length"}
_UNFINISHED: Final = {OutputLimit.code: "length", AnswerRefused.code: "content_filter"}
# Run states in which a decision may be pending.
_MAY_WAIT: Final = frozenset({RunState.QUEUED, RunState.WAITING})


class CompletionAnswer:
    """The answer to one message. If the client disconnects before its end, the run is cancelled."""

    def __init__(self, services: ApiServices, tenant: Tenant, run: Run, *, last_seq: int, origin: str) -> None:
        self.run = run
        self.last_seq = last_seq
        self.finish = "stop"
        self._input_tokens = 0
        self._output_tokens = 0
        self._services = services
        self._tenant = tenant
        self._origin = origin
        self._texts: list[str] = []
        self._source: str | None = None
        # For each message in progress: the attempt, and how much of its text was sent.
        self._received: dict[str, tuple[int, int]] = {}
        self._is_ours = False
        self._is_over = False

    @property
    def text(self) -> str:
        """The text sent so far."""
        return "".join(self._texts)

    @property
    def usage(self) -> dict[str, int]:
        """The tokens used so far, as OpenAI encodes them."""
        used, written = self._input_tokens, self._output_tokens
        return {"prompt_tokens": used, "completion_tokens": written, "total_tokens": used + written}

    async def pieces(self, subscription: Subscription) -> AsyncIterator[str]:
        """Yield the text as it arrives. Raises the error with which the run failed."""
        async for item in subscription:
            text = self._delta(item) if isinstance(item, Delta) else await self._event(item)
            if text:
                self._texts.append(text)
                yield text
            if self._is_over:
                return

    async def let_go(self) -> None:
        """Cancel the run if the client disconnected: its user has no other way to stop it."""
        if not self._is_over:
            with suppress(ToolcribError):
                await self._services.run_service.cancel(self._tenant, self.run.id)

    def _delta(self, delta: Delta) -> str:
        if delta.type is not DeltaType.TEXT:
            return ""
        attempt, length = self._received.get(delta.source, (delta.attempt, 0))
        if delta.attempt < attempt:
            return ""
        again = delta.attempt > attempt
        if again:
            length = 0
        # A delta was lost: the rest comes with the end of the message, in order.
        if delta.offset > length:
            return ""
        # A late subscriber receives text again that was sent already, in whole or in part.
        fresh = delta.text[max(0, length - delta.offset) :]
        self._received[delta.source] = (delta.attempt, max(length, delta.offset + len(delta.text)))
        return (self._aside("(Restarted.)") if again else "") + self._words(delta.source, fresh)

    async def _event(self, event: Event) -> str:
        assert event.seq is not None
        self.last_seq = event.seq
        payload = event.payload
        match event.type:
            case EventType.STREAM_END:
                return self._rest(payload)
            case EventType.PAUSE_ENDED if payload["kind"] == PauseKind.APPROVAL:
                return self._aside(_decided(payload))
            case EventType.RUN_STATE:
                return await self._state(payload)
            case _:
                return ""

    def _rest(self, payload: Mapping[str, Any]) -> str:
        """Return the text of a message that did not arrive as deltas."""
        self._input_tokens += payload["usage"]["inputTokens"]
        self._output_tokens += payload["usage"]["outputTokens"]
        _, length = self._received.pop(payload["messageId"], (0, 0))
        if payload["finishReason"] == WITHDRAWN:
            return self._aside("(The answer above broke off and does not count.)") if length else ""
        return self._words(payload["messageId"], (payload.get("content") or "")[length:])

    async def _state(self, payload: Mapping[str, Any]) -> str:
        state, is_ours = RunState(payload["state"]), payload["runId"] == str(self.run.id)
        self._is_ours = self._is_ours or is_ours
        if state is RunState.ENDED:
            return self._ended(RunEnding(payload["endReason"]), payload.get("error") or {}, is_ours=is_ours)
        # Whatever was pending before our message may be decided by now, so ask the database.
        if self._is_ours and state in _MAY_WAIT and await self._must_wait():
            self._is_over = True
            return self._aside(await notice(self._services, self._tenant, self.run, origin=self._origin))
        return ""

    def _ended(self, ending: RunEnding, error: Mapping[str, Any], *, is_ours: bool) -> str:
        if not is_ours:
            return self._aside(f"(Before this: {error['message']})") if error else ""
        self._is_over = True
        if error.get("code") in _UNFINISHED:
            # Its format has words for them, and clients expect the text so far.
            self.finish = _UNFINISHED[error["code"]]
            return ""
        if ending is RunEnding.FAILED:
            raise _failure(error)
        self.finish = _FINISH.get(ending, "stop")
        if ending in (RunEnding.CANCELLED, RunEnding.VIOLATION, RunEnding.DEADLINE):
            return self._aside(f"({error.get('message') or 'Stopped.'})")
        return ""

    async def _must_wait(self) -> bool:
        unfinished = await self._services.run_service.runs.unfinished(self._tenant, self.run.session_id)
        return unfinished is not None and unfinished.state is RunState.WAITING

    def _words(self, source: str, text: str) -> str:
        """Return text of one message, separated by a paragraph from other messages."""
        if not text:
            return ""
        gap = "\n\n" if self._texts and source != self._source else ""
        self._source = source
        return gap + text

    def _aside(self, text: str) -> str:
        """Return text that is not the agent's own."""
        self._source = None
        return self._words("", text)


def _decided(payload: Mapping[str, Any]) -> str:
    reason = f": {payload['reason']}" if payload.get("reason") else ""
    return f"(`{payload['toolName']}` was {payload['state']}{reason}.)"


def _failure(error: Mapping[str, Any]) -> ToolcribError:
    failure = ToolcribError(str(error.get("message") or "The run failed."), fields=error.get("fields"))
    failure.code = str(error.get("code") or failure.code)
    return failure


DONE: Final[dict[str, Any]] = {}


@dataclass(frozen=True, slots=True)
class Completion:
    """One completion in OpenAI's format: whole, or in chunks."""

    id: str
    model: str
    # Whether every chunk announces that the last one has the usage.
    with_usage: bool = False
    created: int = field(default_factory=lambda: int(time.time()))

    def whole(self, text: str, *, finish: str, usage: dict[str, int]) -> dict[str, Any]:
        """Return the whole completion."""
        message = {"role": "assistant", "content": text, "refusal": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
        return self._shape("chat.completion", [choice]) | {"usage": usage}

    def chunk(self, *, finish: str | None = None, **delta: str) -> dict[str, Any]:
        """Return one chunk."""
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return self._shape("chat.completion.chunk", [choice]) | ({"usage": None} if self.with_usage else {})

    def last(self, usage: dict[str, int]) -> dict[str, Any]:
        """Return the last chunk, with the usage."""
        return self._shape("chat.completion.chunk", []) | {"usage": usage}

    def _shape(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model, "choices": choices}


class CompletionStream(EventStream):
    """Streams chunks as server-sent events; ``DONE`` is the last."""

    opening = b""

    def encode(self, message: dict[str, Any]) -> bytes:
        return b"data: [DONE]\n\n" if message is DONE else b"data: %s\n\n" % to_json(message)
