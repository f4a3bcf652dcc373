"""What all providers have in common, against our strict fake and a third-party mock."""

import asyncio
import json
from dataclasses import replace
from itertools import permutations

import pytest

from tests.fakes.grammar import failure, received, taken
from tests.fakes.memory import WIRES
from tests.fakes.model_server import NDJSON, SSE, Answer, ModelServer, plain
from tests.fakes.scripted_turns import AFTER_RESULTS, HELLO, REFUSED, THINK, THINK_AND_CALL
from tests.fakes.tools import TOOLS
from tests.integration.providers.conftest import NAMES, Access, reach
from toolcrib.core.errors import ProviderError, ProviderErrorKind
from toolcrib.core.messages import (
    AssistantMessage,
    Attachment,
    Message,
    ModelToolCall,
    SystemMessage,
    ToolCallId,
    ToolResultMessage,
    UserMessage,
)
from toolcrib.core.model_stream import FinishReason, StreamFailed, TextDelta
from toolcrib.providers.provider import ModelRequest, ToolChoice, ToolSpec
from toolcrib.providers.provider_registry import ProviderRegistry

SYSTEM = SystemMessage("You are careful.")


def asking(access: Access, *messages: Message, tools: tuple[ToolSpec, ...] = TOOLS) -> ModelRequest:
    return ModelRequest(access.model, (SYSTEM, *messages), tools=tools)


async def test_text_comes_in_deltas_and_ends_with_a_finish(peer: Access) -> None:
    events = await taken(peer.provider.stream(asking(peer, UserMessage("Say hello.")), peer.credentials))

    reception = received(events)
    assert sum(isinstance(event, TextDelta) for event in events) > 1
    # aimock adds encrypted reasoning.
    assert replace(reception.message(), note=None) == AssistantMessage(HELLO.text)
    assert reception.finish
    assert reception.finish.reason is FinishReason.STOP


async def test_thinking_is_separate_from_text(peer: Access) -> None:
    request = asking(peer, UserMessage("Think first."))
    message = received(await taken(peer.provider.stream(request, peer.credentials))).message()

    assert (message.thinking, message.text) == (THINK.thinking, THINK.text)


async def test_two_calls_in_a_message_stay_separate(peer: Access) -> None:
    events = await taken(peer.provider.stream(asking(peer, UserMessage("Use two tools.")), peer.credentials))

    reception = received(events)
    first, second = reception.message().tool_calls
    assert (first.name, first.parsed()) == ("fs.read", {"path": "a.txt"})
    assert (second.name, second.parsed()) == ("list_directory", {"path": "."})
    assert first.id != second.id
    assert reception.finish
    assert reception.finish.reason is FinishReason.TOOL_CALLS
    assert reception.message().text == "I shall look."


async def test_call_without_arguments_has_an_empty_object(peer: Access) -> None:
    request = asking(peer, UserMessage("Call without arguments."))
    (call,) = received(await taken(peer.provider.stream(request, peer.credentials))).message().tool_calls

    assert call.parsed() == {}


async def test_results_are_sent_and_the_model_continues(peer: Access) -> None:
    question = UserMessage("Use two tools.")
    message = received(await taken(peer.provider.stream(asking(peer, question), peer.credentials))).message()
    results = [ToolResultMessage(call.id, f"Output of {call.name}") for call in message.tool_calls]

    events = await taken(peer.provider.stream(asking(peer, question, message, *results), peer.credentials))

    assert received(events).message().text == AFTER_RESULTS.text


async def test_many_streams_at_once_do_not_mix(peer: Access) -> None:
    questions = [UserMessage("Say hello."), UserMessage("Think first.")] * 5

    async def ask(question: UserMessage) -> str:
        return received(await taken(peer.provider.stream(asking(peer, question), peer.credentials))).message().text

    assert await asyncio.gather(*map(ask, questions)) == [HELLO.text, THINK.text] * 5


async def test_usage_is_reported(access: Access) -> None:
    request = asking(access, UserMessage("Say hello."))
    usage = received(await taken(access.provider.stream(request, access.credentials))).usage

    assert (usage.input_tokens, usage.output_tokens) == (HELLO.input_tokens, HELLO.output_tokens)


async def test_unknown_model_is_an_error_with_status_and_body(access: Access) -> None:
    events = await taken(access.provider.stream(asking(access, UserMessage("Nobody knows.")), access.credentials))

    error = failure(events).error
    assert (error.status, error.kind) == (404, ProviderErrorKind.UNKNOWN_MODEL)
    assert "scene" in error.body or "pulling" in error.body


async def test_history_with_orphans_is_repaired_before_it_is_sent(access: Access) -> None:
    long = ToolCallId("an id that is much too long and holds blanks " * 3)
    messages: tuple[Message, ...] = (
        AssistantMessage("I begin."),
        UserMessage(""),
        ToolResultMessage(ToolCallId("never-called"), "Nobody asked."),
        UserMessage("First."),
        AssistantMessage(
            "", tool_calls=(ModelToolCall(ToolCallId("a"), "fs.read", "not json"), ModelToolCall(long, "", ""))
        ),
        UserMessage("I interrupt."),
        ToolResultMessage(long, ""),
        AssistantMessage("", tool_calls=(ModelToolCall(ToolCallId("a"), "mcp:server/tool name", '{"x": 1}'),)),
        AssistantMessage("  \n"),
        UserMessage("Say hello."),
    )

    events = await taken(access.provider.stream(asking(access, *messages), access.credentials))

    assert received(events).message().text == HELLO.text


async def test_without_tools_past_calls_are_sent_as_text(access: Access, fake: ModelServer) -> None:
    call = ModelToolCall(ToolCallId("a"), "fs.read", '{"path": "x"}')
    messages = (UserMessage("Read x."), AssistantMessage("", tool_calls=(call,)), ToolResultMessage(call.id, "Hm."))

    request = asking(access, *messages, UserMessage("Say hello."), tools=())
    events = await taken(access.provider.stream(request, access.credentials))

    assert received(events).message().text == HELLO.text
    sent = json.dumps(fake.last.body)
    assert "tool_use" not in sent
    assert "tool_calls" not in sent
    assert '"tools"' not in sent
    assert "[Called fs.read" in sent
    assert "Hm." in sent


async def test_model_without_tool_support_is_reported(providers: ProviderRegistry, fake: ModelServer) -> None:
    ollama = replace(await reach("ollama", providers, fake.url), model="toolless")
    request = asking(ollama, UserMessage("Say hello."))

    events = await taken(ollama.provider.stream(request, ollama.credentials))
    assert failure(events).error.kind is ProviderErrorKind.TOOLS_UNSUPPORTED

    events = await taken(ollama.provider.stream(replace(request, tools=()), ollama.credentials))
    assert received(events).message().text == HELLO.text


async def test_tools_can_be_withdrawn_while_the_history_contains_calls(access: Access, fake: ModelServer) -> None:
    call = ModelToolCall(ToolCallId("a"), "fs.read", '{"path": "x"}')
    messages = (UserMessage("Read x."), AssistantMessage("", tool_calls=(call,)), ToolResultMessage(call.id, "Hm."))
    request = replace(asking(access, *messages), tool_choice=ToolChoice.NONE)

    events = await taken(access.provider.stream(request, access.credentials))

    assert received(events).message().text == AFTER_RESULTS.text
    body = fake.last.body
    choice = body.get("tool_choice") or body.get("toolConfig", {}).get("functionCallingConfig", {}).get("mode", "none")
    assert choice in ("none", "NONE", {"type": "none"})


async def test_credentials_are_checked(access: Access) -> None:
    await access.provider.validate_credentials(access.credentials)

    if access.provider.name == "ollama":
        return
    wrong = replace(access.credentials, secret="sk-wrong-but-long-enough")
    with pytest.raises(ProviderError) as caught:
        await access.provider.validate_credentials(wrong)
    status = 400 if access.provider.name == "gemini" else 401
    assert (caught.value.status, caught.value.kind) == (status, ProviderErrorKind.CREDENTIALS)
    events = await taken(access.provider.stream(asking(access, UserMessage("Say hello.")), wrong))
    assert failure(events).error.kind is ProviderErrorKind.CREDENTIALS


async def test_models_are_listed_with_their_capabilities(access: Access) -> None:
    models = {model.id: model for model in await access.provider.list_models(access.credentials)}

    match access.provider.name:
        case "anthropic":
            assert (models["claude-fake"].context_window, models["claude-fake"].supports_tools) == (200_000, True)
        case "gemini":
            assert (models["gemini-fake"].context_window, models["gemini-fake"].supports_tools) == (1_048_576, True)
            assert "embedding-fake" not in models
        case "openai":
            assert (models["gpt-4o"].context_window, models["gpt-4o"].supports_tools) == (128_000, True)
            assert "whisper-1" not in models
        case "ollama":
            assert (models["llama-fake"].context_window, models["llama-fake"].supports_tools) == (131_072, True)
            assert not models["toolless"].supports_tools
        case _:
            assert (models["toolless"].context_window, models["toolless"].supports_tools) == (4_096, False)


IMAGE = Attachment("plan.png", "image/png", b"\x89PNG")
PDF = Attachment("paper.pdf", "application/pdf", b"%PDF-1.7")


async def test_an_image_reaches_the_model(access: Access, fake: ModelServer) -> None:
    request = asking(access, UserMessage("Say hello.", (IMAGE,)))
    events = await taken(access.provider.stream(request, access.credentials))

    assert received(events).message().text == HELLO.text
    assert "iVBORw==" in json.dumps(fake.last.body)


async def test_files_of_parallel_results_reach_the_model(access: Access, fake: ModelServer) -> None:
    question = UserMessage("Use two tools.")
    began = received(await taken(access.provider.stream(asking(access, question), access.credentials))).message()
    first, second = began.tool_calls
    results = (
        ToolResultMessage(first.id, "An image.", attachments=(IMAGE,)),
        ToolResultMessage(second.id, "A paper.", attachments=(PDF,)),
    )
    # Where results are only text, a message of the user follows them; it selects the scene.
    fake.say(Answer(tuple(WIRES[access.wire](HELLO)), content_type=NDJSON if access.wire == "ollama" else SSE))
    request = asking(access, question, began, *results)
    events = await taken(access.provider.stream(request, access.credentials))

    assert received(events).message().text == HELLO.text
    sent = json.dumps(fake.last.body)
    assert "iVBORw==" in sent
    # Ollama's API has no PDFs.
    assert ("JVBERi0xLjc=" in sent) is (access.wire != "ollama")


# Ollama has no message for a refusal, nor for an overload once an answer has begun.
REPORTING = [name for name in NAMES if name != "ollama"]


@pytest.mark.parametrize("provider_name", REPORTING)
async def test_a_refusal_is_told_apart(access: Access, fake: ModelServer) -> None:
    fake.say(Answer(tuple(WIRES[access.wire](REFUSED))))
    reception = received(await taken(access.provider.stream(asking(access, UserMessage("Hm.")), access.credentials)))

    assert reception.finish
    assert reception.finish.reason is FinishReason.REFUSAL
    assert reception.message().text == REFUSED.text


@pytest.mark.parametrize(
    ("status", "kind"),
    [(429, ProviderErrorKind.RATE_LIMIT), (503, ProviderErrorKind.OVERLOADED), (529, ProviderErrorKind.OVERLOADED)],
)
async def test_rate_limits_and_overload_are_told_apart(
    access: Access, fake: ModelServer, status: int, kind: ProviderErrorKind
) -> None:
    fake.say(plain(status, {"error": {"message": "slow down"}}, retry_after="7"))
    events = await taken(access.provider.stream(asking(access, UserMessage("Say hello.")), access.credentials))

    assert (failure(events).error.kind, failure(events).error.retry_after) == (kind, 7.0)


# How each service reports, after its answer has begun, that it is overloaded.
OVERLOADED = {
    "anthropic": {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
    "gemini": {"error": {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}},
    "openai": {"error": {"code": 503, "message": "The model is overloaded."}},
    "responses": {
        "type": "response.failed",
        "response": {"error": {"code": "server_is_overloaded", "message": "Try again later."}},
    },
}


@pytest.mark.parametrize("provider_name", REPORTING)
async def test_overload_in_the_middle_of_an_answer_is_reported_as_such(access: Access, fake: ModelServer) -> None:
    begun = WIRES[access.wire](HELLO)
    said = next(at for at, piece in enumerate(begun, 1) if b"Hello" in piece)
    fake.say(Answer((*begun[:said], f"data: {json.dumps(OVERLOADED[access.wire])}\n\n".encode())))
    events = await taken(access.provider.stream(asking(access, UserMessage("Hm.")), access.credentials))

    assert failure(events).error.kind is ProviderErrorKind.OVERLOADED
    assert received(events).message().text == "Hello "


@pytest.mark.parametrize("until_closed", [False, True], ids=["cut", "closed"])
async def test_a_stream_that_breaks_in_the_middle_is_reported_with_what_was_received(
    access: Access, fake: ModelServer, until_closed: bool
) -> None:
    begun = WIRES[access.wire](HELLO)
    said = next(at for at, piece in enumerate(begun, 1) if b"Hello" in piece)
    kind = NDJSON if access.wire == "ollama" else SSE
    fake.say(Answer(tuple(begun[:said]), content_type=kind, cut=not until_closed, until_closed=until_closed))
    events = await taken(access.provider.stream(asking(access, UserMessage("Hm.")), access.credentials))

    assert failure(events).error.kind is ProviderErrorKind.BROKEN_STREAM
    assert received(events).message().text == "Hello "


async def test_unknown_fields_are_ignored(access: Access, fake: ModelServer) -> None:
    pieces = [piece.replace(b"{", b'{"field_of_next_year": {"a": [1]}, ', 1) for piece in WIRES[access.wire](THINK)]
    fake.say(Answer(tuple(pieces), content_type=NDJSON if access.wire == "ollama" else SSE))
    message = received(
        await taken(access.provider.stream(asking(access, UserMessage("Hm.")), access.credentials))
    ).message()

    assert (message.thinking, message.text) == (THINK.thinking, THINK.text)


async def test_a_conversation_switches_providers_in_the_middle_of_a_turn(
    providers: ProviderRegistry, fake: ModelServer
) -> None:
    """Each provider continues what each other one began, between its thinking, its calls and their results."""
    messages: list[Message] = []

    async def turn(name: str) -> AssistantMessage:
        access = await reach(name, providers, fake.url)
        events = await taken(access.provider.stream(asking(access, *messages), access.credentials))
        assert not isinstance(events[-1], StreamFailed), (name, events[-1])
        return received(events).message()

    for first, second in permutations(NAMES, 2):
        messages.append(UserMessage("Think, then use them.", (IMAGE,)))
        began = await turn(first)
        assert [call.name for call in began.tool_calls] == ["fs.read", "list_directory"]
        assert began.thinking == THINK_AND_CALL.thinking
        messages += [began, *(ToolResultMessage(call.id, f"Output of {call.name}") for call in began.tool_calls)]
        ended = await turn(second)
        assert ended.text == AFTER_RESULTS.text
        messages.append(ended)


async def test_a_key_is_shown_neither_in_errors_nor_in_representations(access: Access, fake: ModelServer) -> None:
    fake.say(plain(400, {"error": {"message": f"Your key {access.credentials.secret} is odd."}}))
    events = await taken(access.provider.stream(asking(access, UserMessage("Say hello.")), access.credentials))

    assert access.credentials.secret not in str(failure(events).error)
    assert access.credentials.secret not in repr(access.credentials)
