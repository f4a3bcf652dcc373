"""One turn of a model: streamed to whoever watches, and committed whole; or, if it was cut, what was received."""

import asyncio
from collections.abc import Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from typing import Any

from toolcrib.domain.errors import BadArguments, NotFound, ProviderError, Superseded
from toolcrib.domain.events import Delta, DeltaType, EventType
from toolcrib.domain.ids import MessageId, new_id
from toolcrib.domain.messages import AssistantMessage, recorded
from toolcrib.domain.runs import Said
from toolcrib.domain.streams import Reception, TextDelta, ThinkingDelta
from toolcrib.engine.runs.access import ModelAccess
from toolcrib.engine.runs.conversation import conversation, system_prompt
from toolcrib.engine.runs.story import Story
from toolcrib.engine.watchers import Watchers
from toolcrib.providers.provider import ModelRequest, ToolChoice
from toolcrib.providers.registry import Providers
from toolcrib.storage.database import Tenant
from toolcrib.storage.runs import Runs


@dataclass(frozen=True, slots=True)
class Cut:
    """The provider failed: the run ends with the error, and with what was received as its last words."""

    error: ProviderError
    turn: Mapping[str, Any]


class Asking:
    """Asks models. Holds nothing of any run."""

    def __init__(self, runs: Runs, access: ModelAccess, providers: Providers, live: Watchers) -> None:
        self._runs = runs
        self._access = access
        self._providers = providers
        self._live = live

    async def ask(self, story: Story, *, conclude: bool) -> Cut | None:
        """Asks once and commits the answer; what is returned has not been committed."""
        request = _request(story, conclude=conclude)
        message_id, reception = MessageId(new_id()), Reception()
        try:
            await self._stream(story, request, message_id, reception)
        except asyncio.CancelledError:
            await asyncio.shield(self._stopped(story, message_id, reception))
            raise
        if reception.error is not None:
            return Cut(reception.error, _turn(story, message_id, _received(reception), reception))
        message = reception.message()
        if conclude:
            words = message.text or f"Stopped after {story.run.turns} iterations."
            message = replace(message, tool_calls=(), text=words, note=None)
        turn = _turn(story, message_id, message, reception, concluded=conclude)
        position = await self._runs.record_turn(story.run, turn)
        assert position is not None
        said = Said(message_id, position, story.run.id, "assistant", turn["content"], turn["metadata"])
        story.turned(said, context_tokens=turn["context_tokens"], counted=reception.usage.input_tokens > 0)
        self._wake(story)
        return None

    async def _stream(self, story: Story, request: ModelRequest, message_id: MessageId, reception: Reception) -> None:
        run, rules = story.run, story.agent.rules
        assert rules.provider is not None
        credentials = await self._access.of(run.user_id, rules.provider)
        started = {"messageId": message_id, "runId": run.id, "model": request.model, "attempt": run.epoch}
        await self._runs.record_turn(run, _facts(story, events=[(EventType.STREAM_START, started)], counts=0))
        self._wake(story)
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

    async def _stopped(self, story: Story, message_id: MessageId, reception: Reception) -> None:
        """A person stopped it: what they have seen stays. If it is only this process that stops, the next one asks
        anew, and half an answer must not stand in the way."""
        with suppress(NotFound, Superseded):
            run = await self._runs.get(Tenant(story.run.workspace_id), story.run.id)
            if run.cancelled_by is not None:
                await self._runs.record_turn(story.run, _turn(story, message_id, _received(reception), reception))
                self._wake(story)

    def _wake(self, story: Story) -> None:
        self._live.wake(story.run.workspace_id, story.run.session_id)


def _request(story: Story, *, conclude: bool) -> ModelRequest:
    rules = story.agent.rules
    if not rules.provider or not rules.model:
        raise BadArguments({"agent": f"Agent {story.agent.name!r} names no `provider` and `model`. Add them."})
    prompt = system_prompt(story.agent, () if conclude else story.tools, story.mode)
    return ModelRequest(
        rules.model,
        conversation(prompt, story.said, story.calls, conclude=conclude),
        story.tools,
        ToolChoice.NONE if conclude else ToolChoice.AUTO,
        max_output_tokens=rules.max_output_tokens,
        temperature=rules.temperature,
        thinking_tokens=rules.thinking_tokens,
        context_window=rules.context_window,
    )


def _received(reception: Reception) -> AssistantMessage:
    """What was received of a message that never became whole: its text, and none of its calls."""
    message = reception.message()
    return AssistantMessage(message.text, message.thinking)


def _turn(
    story: Story,
    message_id: MessageId,
    message: AssistantMessage,
    reception: Reception,
    *,
    concluded: bool = False,
) -> dict[str, Any]:
    """An answer, ready to be committed. Its calls get our ids here, so that each is known before it is begun."""
    is_whole = reception.finish is not None and reception.error is None
    record = recorded(message)
    metadata: dict[str, Any] = dict(record.metadata or {})
    for call in metadata.get("tool_calls", ()):
        call["call_id"] = str(new_id())
    if concluded:
        metadata["concluded"] = True
    if not is_whole:
        metadata["cut"] = True
    usage = reception.usage
    context = usage.input_tokens + usage.output_tokens if usage.input_tokens else story.tokens
    payload = {
        "messageId": message_id,
        "runId": story.run.id,
        "content": record.content,
        "thinking": message.thinking or None,
        "toolCalls": [
            {"toolId": call["call_id"], "toolName": call["function"]["name"]} for call in metadata.get("tool_calls", ())
        ],
        "finishReason": reception.finish.reason if reception.finish and is_whole else "cut",
        "usage": {
            "inputTokens": usage.input_tokens,
            "outputTokens": usage.output_tokens,
            "contextTokens": context,
            "contextWindow": story.window,
        },
    }
    # Of a cut answer of which nothing was received only the end is told; an empty message would be sent ever after.
    is_message = is_whole or bool(message.text.strip())
    return _facts(
        story,
        message_id=message_id if is_message else None,
        content=record.content,
        metadata=metadata or None,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        context_tokens=context,
        events=[(EventType.STREAM_END, payload)],
    )


def _facts(story: Story, *, events: list[tuple[EventType, dict[str, Any]]], **facts: Any) -> dict[str, Any]:
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
