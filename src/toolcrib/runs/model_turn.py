"""One turn of a model: builds the request, streams the answer to subscribers, and commits it, complete or partial."""

import asyncio
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from typing import Any

from toolcrib.core.callers import Agent, SessionMode
from toolcrib.core.errors import (
    AnswerRefused,
    EmptyAnswer,
    NotFound,
    OutputLimit,
    ProviderError,
    ProviderErrorKind,
    Superseded,
    UnfinishedAnswer,
)
from toolcrib.core.events import WITHDRAWN, Delta, DeltaType, EventType
from toolcrib.core.ids import CallId, MessageId, new_id
from toolcrib.core.messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    ToolCallId,
    ToolResultMessage,
    UserMessage,
    to_stored,
)
from toolcrib.core.model_stream import FinishReason, MessageBuilder, TextDelta, ThinkingDelta, TokenUsage
from toolcrib.core.provider_credentials import ProviderCredentials
from toolcrib.core.runs import ModelUsage, RequestedCallState, Run, SessionMessage
from toolcrib.events.event_bus import EventPublisher
from toolcrib.policy.model_results import CallProgress
from toolcrib.policy.permissions import TOOL_SEARCH
from toolcrib.providers.provider import PASSING, ModelRequest, ToolChoice, ToolSpec
from toolcrib.providers.provider_registry import ProviderRegistry, RetryPolicy
from toolcrib.runs.loaded_run import CredentialResolver, LoadedRun, as_message, model_of, usage_of
from toolcrib.runs.model_slots import ModelSlots, Pause
from toolcrib.runs.prompt_context import PromptContext
from toolcrib.runs.read_attachments import ReadAttachment
from toolcrib.storage.database import Tenant
from toolcrib.storage.run_steps import RunStepStore

CONCLUDE = (
    "You have reached the limit of this run: no more tools can be called. "
    "Answer now with what you have, and say what is left undone."
)

# A longer wait that a provider asks for holds no worker: the run is put aside.
_LONGEST_HELD = 5.0
_HELD_RETRIES = RetryPolicy(longest_asked=_LONGEST_HELD)
_OVERLOADED = 529


def system_prompt(
    agent: Agent,
    tools: Sequence[ToolSpec],
    mode: SessionMode,
    context: Sequence[str] = (),
    *,
    others: Mapping[str, int] | None = None,
) -> str:
    """Return the system prompt: the agent's own text, the tools that it is actually offered, and its surroundings.

    Args:
        others: How many tools of which toolsets can only be found by searching. What was found is not in the prompt, so
            that it stays the same.
    """
    parts = [agent.rules.prompt.strip() or f"You are {agent.name}, an assistant that works in a user's workspace."]
    if tools:
        names = "\n".join(f"- {tool.name}: {tool.description}" for tool in tools)
        parts.append(f"You have these tools{'' if others else ', and no others'}:\n{names}")
        if others:
            sets = ", ".join(f"{name} ({count})" for name, count in others.items())
            parts.append(
                f"You also have tools that are not listed: {sets}. Find them with `{TOOL_SEARCH}`; then you can call "
                "those that it returns."
            )
        parts.append(
            "Everything you change can be undone, and a person may be asked before a call is carried out. "
            "A result that is an error says what to do; do not repeat a call unchanged that was denied."
        )
    else:
        parts.append("You have no tools in this conversation. Answer from the conversation.")
    if agent.phase is not None:
        parts.append(f"The work is in its phase `{agent.phase}`. Other tools belong to other phases; a person chooses.")
    if mode is SessionMode.PLAN and tools:
        parts.append(
            "You are in plan mode: look, and write your plan with `plan_write`. To begin building, ask the person with "
            "`ask_user` (name `approval`, buttons Accept and Reject), naming the plan file; once they accepted by "
            "button, call `exit_plan_mode`."
        )
    return "\n\n".join((*parts, *context))


def conversation(
    prompt: str,
    message: Sequence[SessionMessage],
    calls: Mapping[CallId, CallProgress],
    read: Mapping[CallId, ReadAttachment],
    *,
    context: PromptContext = PromptContext(),  # noqa: B008 - frozen
    conclude: bool = False,
) -> tuple[Message, ...]:
    """Return the messages of one request. Every call is followed by its result: none is stored without one.

    Args:
        read: The images and PDFs that calls have returned.
    """
    messages: list[Message] = [SystemMessage(prompt)]
    for one in message:
        messages.append(_with_attachments(as_message(one), one, read))
        messages.extend(_results(one, calls, read, context))
    if conclude:
        messages.append(UserMessage(CONCLUDE))
    return tuple(messages)


def _with_attachments(message: Message, one: SessionMessage, read: Mapping[CallId, ReadAttachment]) -> Message:
    """Return a person's message with the files that it brings. What cannot be shown is described."""
    if not isinstance(message, UserMessage) or not one.attached:
        return message
    found = [read[call_id] for call_id in one.attached if call_id in read]
    about = "".join(f"\n[Attached: {each.text}]" for each in found)
    missing = len(one.attached) - len(found)
    lost = f"\n[Not shown: {missing} attached files are not stored any more.]" if missing else ""
    attachments = tuple(one for each in found for one in each.attachments)
    return UserMessage(f"{message.text}{about}{lost}", attachments)


def _results(
    one: SessionMessage,
    calls: Mapping[CallId, CallProgress],
    read: Mapping[CallId, ReadAttachment],
    context: PromptContext,
) -> Iterator[Message]:
    for call_id, call in one.requested:
        view, shown = calls.get(call_id), read.get(call_id)
        if shown is not None and shown.replaces:
            yield ToolResultMessage(ToolCallId(call["id"]), shown.text, attachments=shown.attachments)
            continue
        if view is None or view.state is not RequestedCallState.ENDED:
            text, failed = "The call did not run.", True
        else:
            text, failed = view.result_text
        text = (text or "(nothing)") + (f"\n[Attached: {shown.text}]" if shown else "") + context.after_call(call_id)
        attachments = shown.attachments if shown else ()
        yield ToolResultMessage(ToolCallId(call["id"]), text, is_error=failed, attachments=attachments)


@dataclass(frozen=True, slots=True)
class FailedTurn:
    """The provider failed, or the answer is none: the run ends with the error and with the text received so far."""

    error: ProviderError | UnfinishedAnswer
    turn: Mapping[str, Any]
    # Nothing of the answer was received.
    is_empty: bool
    # The message whose text people have seen, and what the request has used.
    message_id: MessageId
    used: ModelUsage


@dataclass(frozen=True, slots=True)
class ProviderPatience:
    """How often a run is put aside in a row when its provider limits requests, and for how many seconds in total.

    And how often an answer that broke off is asked for again, the first time after ``repeat_seconds``.
    """

    most_waits: int = 5
    most_seconds: float = 3600.0
    first_seconds: float = 10.0
    most_repeats: int = 2
    repeat_seconds: float = 0.5

    def repeat(self, loaded: LoadedRun, failed: FailedTurn) -> float | None:
        """Return after how many seconds to ask again for an answer that broke off; None if not."""
        is_passing = isinstance(failed.error, ProviderError) and failed.error.kind in PASSING
        if failed.is_empty or not is_passing or loaded.repeats >= self.most_repeats:
            return None
        return float(self.repeat_seconds * 2**loaded.repeats)

    def wait(self, run: Run, failed: FailedTurn) -> float | None:
        """Return for how many seconds to put the run aside; None if it fails."""
        error = failed.error
        if isinstance(error, UnfinishedAnswer):
            return None
        asked = error.retry_after or 0.0
        is_limit = error.kind is ProviderErrorKind.RATE_LIMIT or error.status == _OVERLOADED
        is_limit = is_limit or (error.kind in PASSING and asked > _LONGEST_HELD)
        # An answer that broke off is asked for again at once, or ends the run with what a person has seen of it.
        if not is_limit or not failed.is_empty or run.provider_waits >= self.most_waits:
            return None
        # A short wait that the provider asked for was tried already.
        least = asked if asked > _LONGEST_HELD else self.first_seconds * 2**run.provider_waits
        left = self.most_seconds - run.provider_wait_ms / 1000
        # Randomized upwards, so that runs that were limited together do not all come back at once.
        return min(random.uniform(least, least * 1.25), left) if least <= left else None  # noqa: S311


class ModelTurn:
    """Calls models. Stateless between runs."""

    def __init__(
        self,
        runs: RunStepStore,
        access: CredentialResolver,
        providers: ProviderRegistry,
        slots: ModelSlots,
        live: EventPublisher,
    ) -> None:
        self._runs = runs
        self._slots = slots
        self._access = access
        self._providers = providers
        self._live = live

    async def run(self, loaded: LoadedRun, *, conclude: bool) -> FailedTurn | None:
        """Call the model once and commit the answer.

        Returns:
            The failure if the provider failed, or if the answer is none; it is not committed yet.

        Raises:
            NoModelSlot: The credential has no room for another request.
        """
        request = _request(loaded, await self._read_attachments(loaded), conclude=conclude)
        message_id, reception = MessageId(new_id()), MessageBuilder()
        try:
            await self._stream(loaded, request, message_id, reception)
        except asyncio.CancelledError:
            await asyncio.shield(self._save_cancelled(loaded, message_id, reception))
            raise
        used = usage_of(loaded, reception.usage)
        message = reception.message()
        error = reception.error or (None if conclude else _unfinished(reception, loaded))
        if error is not None:
            return FailedTurn(
                error,
                _turn_row(loaded, message_id, _partial_message(reception), reception, used, is_whole=False),
                is_empty=not (message.text or message.thinking or message.tool_calls),
                message_id=message_id,
                used=used,
            )
        if conclude:
            words = message.text or f"Stopped after {loaded.run.turns} iterations."
            message = replace(message, tool_calls=(), text=words, note=None)
        elif _is_empty(message):
            names = ", ".join(dict.fromkeys(f"`{name}`" for name in loaded.calls_that_worked))
            message = replace(message, text=f"(The model ended without an answer, after calls that worked: {names}.)")
        turn = _turn_row(loaded, message_id, message, reception, used, concluded=conclude)
        position = await self._runs.save_turn(loaded.run, turn)
        assert position is not None
        history = SessionMessage(message_id, position, loaded.run.id, "assistant", turn["content"], turn["metadata"])
        loaded.add_turn(history, context_tokens=turn["context_tokens"], counted=used.input_tokens > 0, used=used)
        self._notify(loaded)
        return None

    async def withdraw(self, loaded: LoadedRun, failed: FailedTurn) -> None:
        """Take back what people have seen of an answer that broke off: the model is asked again, and says it anew."""
        event = _withdrawal(loaded, failed.message_id, failed.used)
        await self._runs.save_turn(loaded.run, _turn_facts(loaded, events=[event], counts=0, **failed.used.row))
        loaded.add_usage(failed.used)
        loaded.repeats += 1
        self._notify(loaded)

    async def _stream(
        self, loaded: LoadedRun, request: ModelRequest, message_id: MessageId, reception: MessageBuilder
    ) -> None:
        run, rules = loaded.run, loaded.agent.rules
        assert rules.provider is not None
        credentials = await self._access.of(run.user_id, rules.provider)
        async with self._slots.hold(run, rules.provider, credentials) as pause:
            await self._stream_with(loaded, request, message_id, reception, credentials, pause)

    async def _stream_with(
        self,
        loaded: LoadedRun,
        request: ModelRequest,
        message_id: MessageId,
        reception: MessageBuilder,
        credentials: ProviderCredentials,
        pause: Pause,
    ) -> None:
        run, rules = loaded.run, loaded.agent.rules
        assert rules.provider is not None
        started = {"messageId": message_id, "runId": run.id, "model": request.model, "attempt": run.epoch}
        events = [(EventType.STREAM_START, started)]
        if loaded.may_have_open_stream and (seen := await self._runs.open_stream(run)) is not None:
            # Of a process that was killed while it streamed.
            events.insert(0, _withdrawal(loaded, seen, usage_of(loaded, TokenUsage())))
        loaded.may_have_open_stream = False
        await self._runs.save_turn(run, _turn_facts(loaded, events=events, counts=0))
        self._notify(loaded)
        message = {DeltaType.TEXT: 0, DeltaType.THINKING: 0}
        answer = self._providers.stream_turn(
            rules.provider, request, credentials, seconds=rules.turn_timeout, patience=_HELD_RETRIES, pause=pause
        )
        async with aclosing(answer):
            async for event in answer:
                reception.add(event)
                if isinstance(event, TextDelta | ThinkingDelta) and event.text:
                    kind = DeltaType.TEXT if isinstance(event, TextDelta) else DeltaType.THINKING
                    self._live.publish_delta(
                        Delta(
                            run.workspace_id,
                            run.session_id,
                            kind,
                            str(message_id),
                            event.text,
                            attempt=run.epoch,
                            offset=message[kind],
                        )
                    )
                    message[kind] += len(event.text)

    async def _read_attachments(self, loaded: LoadedRun) -> dict[CallId, ReadAttachment]:
        ids = [call_id for one in loaded.messages for call_id in (*one.attached, *one.call_ids)]
        return await loaded.read_attachments.of(ids, loaded.calls, self._runs, loaded.run.workspace_id)

    async def _save_cancelled(self, loaded: LoadedRun, message_id: MessageId, reception: MessageBuilder) -> None:
        """Save the partial answer if a person cancelled the run: what they have seen stays.

        If only this process stops, nothing is saved: the next process calls the model again, and a partial answer would
        be in its way.
        """
        with suppress(NotFound, Superseded):
            run = await self._runs.get(Tenant(loaded.run.workspace_id), loaded.run.id)
            if run.cancelled_by is not None:
                used = usage_of(loaded, reception.usage)
                turn = _turn_row(loaded, message_id, _partial_message(reception), reception, used)
                await self._runs.save_turn(loaded.run, turn)
                self._notify(loaded)

    def _notify(self, loaded: LoadedRun) -> None:
        self._live.notify(loaded.run.workspace_id, loaded.run.session_id)


def _request(loaded: LoadedRun, read: Mapping[CallId, ReadAttachment], *, conclude: bool) -> ModelRequest:
    rules = loaded.agent.rules
    _, model = model_of(loaded.agent)
    context = loaded.context or PromptContext()
    sections = context.sections([call_id for one in loaded.messages for call_id in one.call_ids])
    listed = () if conclude else loaded.listed
    prompt = system_prompt(loaded.agent, listed, loaded.mode, sections, others=loaded.unlisted)
    return ModelRequest(
        model,
        conversation(prompt, loaded.messages, loaded.calls, read, context=context, conclude=conclude),
        loaded.offered,
        ToolChoice.NONE if conclude else ToolChoice.AUTO,
        max_output_tokens=rules.max_output_tokens,
        temperature=rules.temperature,
        thinking_tokens=rules.thinking_tokens,
        context_window=rules.context_window,
        effort=rules.effort,
        wire=rules.wire,
    )


def _unfinished(reception: MessageBuilder, loaded: LoadedRun) -> UnfinishedAnswer | None:
    """Return why a message that the provider calls complete is no answer; None if it is one.

    Such a message requests nothing: of several calls, those that came whole may make no sense without the others.
    """
    reason, message = reception.finish.reason if reception.finish else None, reception.message()
    calls = [*(call.name for call in message.tool_calls), *reception.incomplete_calls]
    dropped = f" It requested calls that did not run: {', '.join(f'`{name}`' for name in calls)}." if calls else ""
    if reason is FinishReason.LENGTH:
        limit = loaded.agent.rules.max_output_tokens
        at = f"its output limit of {limit:,} tokens (`max_output_tokens`)" if limit else "its output limit"
        return OutputLimit(
            f"The model's answer was cut off at {at}, or the context was full.{dropped} Raise the limit, or "
            "ask for smaller steps."
        )
    if reason is FinishReason.REFUSAL:
        return AnswerRefused(f"The model, or its provider's filter, refused to answer.{dropped} Rephrase the message.")
    # After calls that worked, a model may have nothing to add. Their results are there, so the run has not failed.
    if _is_empty(message) and not loaded.calls_that_worked:
        return EmptyAnswer(f"The model's answer is empty: neither text nor a call.{dropped} Send the message again.")
    return None


def _is_empty(message: AssistantMessage) -> bool:
    return not message.text.strip() and not message.tool_calls


def _partial_message(reception: MessageBuilder) -> AssistantMessage:
    """Return the text that was received of an incomplete message, without its calls."""
    message = reception.message()
    return AssistantMessage(message.text, message.thinking)


def _turn_row(
    loaded: LoadedRun,
    message_id: MessageId,
    message: AssistantMessage,
    reception: MessageBuilder,
    used: ModelUsage,
    *,
    concluded: bool = False,
    is_whole: bool = True,
) -> dict[str, Any]:
    """Prepare an answer to be committed. Its calls get their ids here, so that each is known before it starts."""
    is_complete = is_whole and reception.finish is not None and reception.error is None
    record = to_stored(message)
    metadata: dict[str, Any] = dict(record.metadata or {})
    for call in metadata.get("tool_calls", ()):
        call["call_id"] = str(new_id())
    if concluded:
        metadata["concluded"] = True
    if not is_complete:
        metadata["cut"] = True
    context = used.input_tokens + used.output_tokens if used.input_tokens else loaded.tokens
    payload = {
        "messageId": message_id,
        "runId": loaded.run.id,
        "content": record.content,
        "thinking": message.thinking or None,
        "toolCalls": [
            {"toolId": call["call_id"], "toolName": call["function"]["name"]} for call in metadata.get("tool_calls", ())
        ],
        "finishReason": reception.finish.reason if reception.finish and reception.error is None else "cut",
        "usage": {**used.payload, "contextTokens": context, "contextWindow": loaded.window},
    }
    # If nothing was received, only the end is recorded: an empty message would be sent in every later request.
    is_message = is_complete or bool(message.text.strip())
    return _turn_facts(
        loaded,
        message_id=message_id if is_message else None,
        content=record.content,
        metadata=metadata or None,
        context_tokens=context,
        **used.row,
        events=[(EventType.STREAM_END, payload)],
    )


def _withdrawal(loaded: LoadedRun, message_id: MessageId, used: ModelUsage) -> tuple[EventType, dict[str, Any]]:
    """Return the event that ends a message whose text does not count."""
    usage = {**used.payload, "contextTokens": loaded.run.context_tokens, "contextWindow": loaded.window}
    return EventType.STREAM_END, {
        "messageId": message_id,
        "runId": loaded.run.id,
        "content": "",
        "thinking": None,
        "toolCalls": [],
        "finishReason": WITHDRAWN,
        "usage": usage,
    }


def _turn_facts(loaded: LoadedRun, *, events: list[tuple[EventType, dict[str, Any]]], **facts: Any) -> dict[str, Any]:
    """Return the row that commits the turn."""
    return {
        "message_id": None,
        "content": "",
        "metadata": None,
        "input_tokens": 0,
        "output_tokens": 0,
        "cost": "0",
        "unpriced": 0,
        "context_tokens": loaded.run.context_tokens,
        "counts": 1,
        "events": [{"type": type_, "payload": payload} for type_, payload in events],
        **facts,
    }
