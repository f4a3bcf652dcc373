"""Calls and tools in each wire format, by the seeds' acceptance criteria."""

import pytest

from tests.fakes.grammar import received, taken
from tests.fakes.model_server import ModelServer
from tests.fakes.tools import TOOLS
from tests.integration.providers.conftest import Access, reach
from toolcrib.core.messages import AssistantMessage, Message, ModelToolCall, ToolCallId, ToolResultMessage, UserMessage
from toolcrib.core.model_stream import FinishReason, StreamEvent, ToolCallDelta, ToolCallEnd, ToolCallStart
from toolcrib.providers.provider import ModelRequest
from toolcrib.providers.provider_registry import ProviderRegistry

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}


async def call_events(access: Access) -> list[StreamEvent]:
    request = ModelRequest(access.model, (UserMessage("Use two tools."),), tools=TOOLS)
    events = await taken(access.provider.stream(request, access.credentials))
    return [event for event in events if isinstance(event, ToolCallStart | ToolCallDelta | ToolCallEnd)]


def arguments_of(events: list[StreamEvent], index: int) -> str:
    return "".join(event.arguments for event in events if isinstance(event, ToolCallDelta) and event.index == index)


async def test_ac25_claude_tool_use_blocks_become_start_delta_and_end(
    providers: ProviderRegistry, fake: ModelServer
) -> None:
    events = await call_events(await reach("anthropic", providers, fake.url))

    assert events[0] == ToolCallStart(0, ToolCallId("call_one"), "fs.read")
    assert arguments_of(events, 0) == '{"path": "a.txt"}'
    second = events.index(ToolCallStart(1, ToolCallId("call_two"), "list_directory"))
    assert events[second - 1] == ToolCallEnd(0)
    assert events[-1] == ToolCallEnd(1)


@pytest.mark.parametrize("name", ["openai-compatible", "copilot"])
async def test_ac26_openai_tool_calls_become_the_same_events(
    name: str, providers: ProviderRegistry, fake: ModelServer
) -> None:
    events = await call_events(await reach(name, providers, fake.url))

    assert events[0] == ToolCallStart(0, ToolCallId("call_one"), "fs.read")
    assert ToolCallStart(1, ToolCallId("call_two"), "list_directory") in events
    assert arguments_of(events, 1) == '{"path": "."}'
    assert events[-2:] == [ToolCallEnd(0), ToolCallEnd(1)]


@pytest.mark.parametrize("name", ["openai", "copilot responses"])
async def test_function_calls_of_responses_become_the_same_events(
    name: str, providers: ProviderRegistry, fake: ModelServer
) -> None:
    events = await call_events(await reach(name, providers, fake.url))

    assert fake.last.path.endswith("/responses")
    assert events[0] == ToolCallStart(0, ToolCallId("call_one"), "fs.read")
    second = events.index(ToolCallStart(1, ToolCallId("call_two"), "list_directory"))
    assert events[second - 1] == ToolCallEnd(0)
    assert arguments_of(events, 1) == '{"path": "."}'
    assert events[-1] == ToolCallEnd(1)


async def test_ac27_ollama_calls_come_as_start_one_delta_end(providers: ProviderRegistry, fake: ModelServer) -> None:
    events = await call_events(await reach("ollama", providers, fake.url))

    assert [event.type for event in events] == ["tool_call_start", "tool_call_delta", "tool_call_end"] * 2
    assert [event.arguments for event in events if isinstance(event, ToolCallDelta)] == [
        '{"path": "a.txt"}',
        '{"path": "."}',
    ]


async def test_ac28_tools_are_formatted_for_each_provider(access: Access, fake: ModelServer) -> None:
    await call_events(access)

    first = fake.last.body["tools"][0]
    if access.wire == "gemini":
        first = first["functionDeclarations"][0]
    function = {"name": "fs_read", "description": "Read a file.", "parameters": SCHEMA}
    match access.wire:
        case "anthropic":
            assert first == {"name": "fs_read", "description": "Read a file.", "input_schema": SCHEMA}
        case "gemini":
            assert first == {"name": "fs_read", "description": "Read a file.", "parametersJsonSchema": SCHEMA}
        case "responses":
            assert first == {"type": "function", **function, "strict": False}
        case _:
            assert first == {"type": "function", "function": function}


async def test_tool_results_are_formatted_for_each_provider(access: Access, fake: ModelServer) -> None:
    call = ModelToolCall(ToolCallId("toolu_1"), "fs.read", '{"path": "x"}')
    messages: tuple[Message, ...] = (
        UserMessage("Read x."),
        AssistantMessage("", tool_calls=(call,)),
        ToolResultMessage(call.id, "X"),
    )
    await taken(access.provider.stream(ModelRequest(access.model, messages, tools=TOOLS), access.credentials))

    last = fake.last.body[{"responses": "input", "gemini": "contents"}.get(access.wire, "messages")][-1]
    match access.wire:
        case "anthropic":
            block = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "X"}
            assert last == {"role": "user", "content": [block]}
        case "gemini":
            response = {"id": "toolu_1", "name": "fs_read", "response": {"output": "X"}}
            assert last == {"role": "user", "parts": [{"functionResponse": response}]}
        case "responses":
            assert last == {"type": "function_call_output", "call_id": "toolu_1", "output": "X"}
        case "ollama":
            assert last == {"role": "tool", "content": "X", "tool_name": "fs_read", "tool_call_id": "toolu_1"}
        case _:
            assert last == {"role": "tool", "tool_call_id": "toolu_1", "content": "X"}


async def test_tool_definition_matches_openai_function_calling_format(
    providers: ProviderRegistry, fake: ModelServer
) -> None:
    await call_events(await reach("openai-compatible", providers, fake.url))

    sent = fake.last.body["tools"][1]
    function = {"name": "list_directory", "description": "List a directory.", "parameters": SCHEMA}
    assert sent == {"type": "function", "function": function}


async def test_includes_tools_in_request_body_when_provided(providers: ProviderRegistry, fake: ModelServer) -> None:
    copilot = await reach("copilot", providers, fake.url)

    await call_events(copilot)
    assert [tool["function"]["name"] for tool in fake.last.body["tools"]] == ["fs_read", "list_directory"]

    request = ModelRequest(copilot.model, (UserMessage("Say hello."),))
    await taken(copilot.provider.stream(request, copilot.credentials))
    assert "tools" not in fake.last.body


async def test_parses_delta_tool_calls_into_tool_call_start_and_tool_call_delta_events(
    providers: ProviderRegistry, fake: ModelServer
) -> None:
    events = await call_events(await reach("copilot", providers, fake.url))
    assert {event.type for event in events} == {"tool_call_start", "tool_call_delta", "tool_call_end"}


async def test_yields_finish_with_reason_stop_for_normal_completion(
    providers: ProviderRegistry, fake: ModelServer
) -> None:
    copilot = await reach("copilot", providers, fake.url)
    request = ModelRequest(copilot.model, (UserMessage("Say hello."),))
    reception = received(await taken(copilot.provider.stream(request, copilot.credentials)))

    assert reception.finish
    assert reception.finish.reason is FinishReason.STOP


async def test_copilot_receives_whether_a_person_asks(providers: ProviderRegistry, fake: ModelServer) -> None:
    copilot = await reach("copilot", providers, fake.url)

    await call_events(copilot)
    headers = fake.last.headers
    assert (headers["x-initiator"], headers["openai-intent"]) == ("user", "conversation-edits")
    assert headers["user-agent"].startswith("toolcrib/")
    assert fake.last.path == "/chat/completions"

    call = ModelToolCall(ToolCallId("1"), "fs.read", "{}")
    messages = (UserMessage("x"), AssistantMessage("", tool_calls=(call,)), ToolResultMessage(call.id, "X"))
    await taken(copilot.provider.stream(ModelRequest(copilot.model, messages, tools=TOOLS), copilot.credentials))
    assert fake.last.headers["x-initiator"] == "agent"
