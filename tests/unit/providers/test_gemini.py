"""Gemini's own wire format: signatures that go back, refusals, limits, and calls of other models."""

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.fakes.grammar import failure, received
from tests.fakes.memory import read_bytes
from tests.fakes.scripted_turns import HELLO, THINK, TWO_CALLS
from tests.fakes.strictness import gemini_refusal
from tests.fakes.tools import TOOLS
from tests.fakes.wires import SIGNATURE, gemini, sse
from toolcrib.core.errors import ProviderErrorKind
from toolcrib.core.messages import AssistantMessage, Message, SystemMessage, ToolResultMessage, UserMessage
from toolcrib.core.model_options import Effort
from toolcrib.core.model_stream import FinishReason
from toolcrib.providers.gemini import NO_SIGNATURE, request_body
from toolcrib.providers.provider import ModelRequest, response_error
from toolcrib.providers.wire_history import ToolNameEncoder

MODEL = "gemini-3.5-flash"


def sent(*messages: Message, model: str = MODEL, **options: Any) -> dict[str, Any]:
    request = ModelRequest(model, messages, tools=TOOLS, **options)
    body = request_body(request, ToolNameEncoder.of(request.tools, request.messages), provider="gemini")
    assert gemini_refusal(body, model, SIGNATURE) is None
    return body


async def answered(model: str = MODEL) -> tuple[Message, ...]:
    scene = replace(TWO_CALLS, thinking=THINK.thinking)
    message = received(await read_bytes("gemini", gemini(scene), model=model)).message()
    assert message.thinking == THINK.thinking
    return (UserMessage("Go."), message, *(ToolResultMessage(call.id, "X") for call in message.tool_calls))


async def test_signatures_go_back_where_they_came_from() -> None:
    contents = sent(SystemMessage("Be brief."), *await answered())["contents"]

    text, first, second = contents[1]["parts"]
    assert text == {"text": TWO_CALLS.text}
    assert first["thoughtSignature"] == SIGNATURE
    assert first["functionCall"] == {"id": "call_one", "name": "fs_read", "args": {"path": "a.txt"}}
    assert "thoughtSignature" not in second
    assert [part["functionResponse"]["id"] for part in contents[2]["parts"]] == ["call_one", "call_two"]


async def test_calls_of_another_model_are_accepted_without_its_signature() -> None:
    body = sent(*await answered("gemini-2.5-pro"))

    assert body["contents"][1]["parts"][1]["thoughtSignature"] == NO_SIGNATURE
    assert SIGNATURE not in json.dumps(body)
    assert "thoughtSignature" not in json.dumps(sent(*await answered(), model="gemini-2.5-flash"))


async def test_the_signature_of_a_text_goes_back() -> None:
    stream = gemini(HELLO)
    stream[-1] = stream[-1].replace(b'{"text": ""}', b'{"text": "", "thoughtSignature": "%s"}' % SIGNATURE.encode())
    message = received(await read_bytes("gemini", stream, model=MODEL)).message()

    contents = sent(UserMessage("Hi."), message, UserMessage("And?"))["contents"]
    assert contents[1]["parts"] == [{"text": HELLO.text, "thoughtSignature": SIGNATURE}]


@pytest.mark.parametrize(
    ("model", "options", "thinking"),
    [
        (MODEL, {"effort": Effort.LOW}, {"includeThoughts": True, "thinkingLevel": "LOW"}),
        (MODEL, {"thinking_tokens": 500}, {"includeThoughts": True}),
        ("gemini-2.5-flash", {"effort": Effort.NONE}, {"includeThoughts": True, "thinkingBudget": 0}),
        ("gemini-2.5-pro", {"thinking_tokens": 500}, {"includeThoughts": True, "thinkingBudget": 500}),
    ],
)
def test_thinking_is_asked_for_in_the_form_of_the_model(
    model: str, options: dict[str, Any], thinking: dict[str, Any]
) -> None:
    assert sent(UserMessage("Go."), model=model, **options)["generationConfig"]["thinkingConfig"] == thinking


def test_a_model_without_thinking_is_not_asked_for_it() -> None:
    assert "generationConfig" not in sent(UserMessage("Go."), model="gemini-2.0-flash")


def test_a_conversation_of_an_assistant_alone_is_completed() -> None:
    contents = sent(AssistantMessage("I begin."))["contents"]
    assert [content["role"] for content in contents] == ["user", "model", "user"]


@pytest.mark.parametrize("reason", ["SAFETY", "RECITATION", "PROHIBITED_CONTENT"])
async def test_a_refusal_for_safety_is_told_apart(reason: str) -> None:
    chunk = {"candidates": [{"content": {}, "finishReason": reason}], "usageMetadata": {"promptTokenCount": 3}}
    reception = received(await read_bytes("gemini", [*gemini(HELLO)[:2], sse(chunk)]))

    assert reception.finish
    assert reception.finish.reason is FinishReason.REFUSAL
    assert reception.message().text


async def test_a_blocked_prompt_says_so() -> None:
    reception = received(await read_bytes("gemini", [sse({"promptFeedback": {"blockReason": "SAFETY"}})]))

    assert reception.finish
    assert reception.finish.reason is FinishReason.REFUSAL
    assert "SAFETY" in reception.message().text


@pytest.mark.parametrize("reason", ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL"])
async def test_an_invalid_call_of_the_model_is_a_broken_stream(reason: str) -> None:
    chunk = {"candidates": [{"finishReason": reason, "finishMessage": "print(x)"}]}
    error = failure(await read_bytes("gemini", [sse(chunk)])).error

    assert error.kind is ProviderErrorKind.BROKEN_STREAM
    assert reason in error.message


async def test_thoughts_count_as_output_and_cached_tokens_as_input() -> None:
    usage = {
        "promptTokenCount": 100,
        "cachedContentTokenCount": 60,
        "candidatesTokenCount": 5,
        "thoughtsTokenCount": 20,
    }
    chunk = {"candidates": [{"finishReason": "STOP"}], "usageMetadata": usage}
    found = received(await read_bytes("gemini", [sse(chunk)])).usage

    assert (found.input_tokens, found.cached_input_tokens, found.output_tokens) == (100, 60, 25)


async def test_unknown_fields_and_parts_are_ignored() -> None:
    part = {"executableCode": {"language": "PYTHON", "code": "1"}}
    chunk = {"candidates": [{"content": {"parts": [part]}, "groundingMetadata": {}}], "hologram": 1}
    message = received(await read_bytes("gemini", [sse(chunk), *gemini(HELLO)])).message()

    assert message.text == HELLO.text


async def test_an_error_within_the_stream_has_its_kind() -> None:
    chunk = {"error": {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}}
    error = failure(await read_bytes("gemini", [*gemini(HELLO)[:2], sse(chunk)])).error

    assert error.kind is ProviderErrorKind.OVERLOADED


def test_a_rate_limit_of_google_is_no_missing_credit_and_says_when_to_retry() -> None:
    details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.5s"}]
    message = "You exceeded your current quota, please check your plan and billing details."
    error = response_error(429, json.dumps({"error": {"code": 429, "message": message, "details": details}}))

    assert (error.kind, error.retry_after) == (ProviderErrorKind.RATE_LIMIT, 34.5)
