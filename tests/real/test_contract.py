"""What all providers have in common, against a real model: the content is its own, the form is not."""

from contextlib import aclosing

import pytest

from tests.fakes.grammar import failure, received, taken
from tests.fakes.tools import LIST_DIRECTORY, TOOLS
from tests.real.conftest import Access
from tests.real.llama import MODEL
from toolcrib.core.errors import ProviderErrorKind
from toolcrib.core.messages import (
    AssistantMessage,
    Message,
    ModelToolCall,
    SystemMessage,
    ToolCallId,
    ToolResultMessage,
    UserMessage,
)
from toolcrib.core.model_stream import FinishReason, TextDelta
from toolcrib.core.provider_credentials import ProviderCredentials
from toolcrib.providers.provider import ModelRequest, ToolChoice, ToolSpec

pytestmark = pytest.mark.real

SYSTEM = SystemMessage("You are a helpful assistant.")
CALL = ModelToolCall(ToolCallId("call_1"), "list_directory", '{"path": "/"}')


def asking(
    access: Access,
    *messages: Message,
    tools: tuple[ToolSpec, ...] = (),
    choice: ToolChoice = ToolChoice.AUTO,
    most: int = 60,
) -> ModelRequest:
    return ModelRequest(
        MODEL, (SYSTEM, *messages), tools=tools, tool_choice=choice, max_output_tokens=most, wire=access.wire
    )


async def test_text_comes_in_deltas_and_ends_with_a_finish(access: Access) -> None:
    request = asking(access, UserMessage("What is the capital of France?"))
    events = await taken(access.provider.stream(request, access.credentials))

    reception = received(events)
    assert sum(isinstance(event, TextDelta) for event in events) > 1
    assert "Paris" in reception.message().text
    assert reception.finish
    assert reception.finish.reason in (FinishReason.STOP, FinishReason.LENGTH)
    assert reception.usage.input_tokens > 0
    assert reception.usage.output_tokens > 0


async def test_requested_call_is_received_completely(calling: Access) -> None:
    question = UserMessage("List the root directory.")
    request = asking(calling, question, tools=(LIST_DIRECTORY,), choice=ToolChoice.REQUIRED, most=400)
    reception = received(await taken(calling.provider.stream(request, calling.credentials)))

    assert reception.finish
    assert reception.finish.reason is FinishReason.TOOL_CALLS
    calls = reception.message().tool_calls
    assert {call.name for call in calls} == {"list_directory"}
    assert all(call.parsed() is not None for call in calls)


async def test_results_are_sent_and_the_model_continues(access: Access) -> None:
    said = AssistantMessage("", tool_calls=(CALL,))
    result = ToolResultMessage(CALL.id, "notes.txt\nplan.md")
    request = asking(
        access, UserMessage("What is in /?"), said, result, tools=(LIST_DIRECTORY,), choice=ToolChoice.NONE
    )
    reception = received(await taken(access.provider.stream(request, access.credentials)))

    assert reception.finish
    assert reception.message().text


async def test_history_with_orphans_is_accepted(access: Access) -> None:
    orphaned = AssistantMessage("", tool_calls=(CALL,))
    request = asking(access, UserMessage("What is in /?"), orphaned, UserMessage("Never mind. Say hello."), tools=TOOLS)
    reception = received(await taken(access.provider.stream(request, access.credentials)))

    assert reception.error is None


async def test_disconnecting_frees_the_model_for_the_next_request(access: Access) -> None:
    """It has one slot only: a client that stays connected would keep it."""
    endless = asking(access, UserMessage("Tell a very long story."), most=4_000)
    async with aclosing(access.provider.stream(endless, access.credentials)) as events:
        async for event in events:
            if isinstance(event, TextDelta):
                break
    request = asking(access, UserMessage("Say hello."))
    reception = received(await taken(access.provider.stream(request, access.credentials)))
    assert reception.finish


async def test_too_long_context_is_reported_as_such(access: Access) -> None:
    events = await taken(access.provider.stream(asking(access, UserMessage("word " * 20_000)), access.credentials))

    assert failure(events).error.kind is ProviderErrorKind.CONTEXT_TOO_LONG


async def test_wrong_key_is_reported_as_such(access: Access) -> None:
    wrong = ProviderCredentials("sk-wrong", base_url=access.credentials.base_url)
    events = await taken(access.provider.stream(asking(access, UserMessage("Hello.")), wrong))

    assert failure(events).error.kind is ProviderErrorKind.CREDENTIALS
