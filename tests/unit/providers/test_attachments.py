"""Images and PDFs in each wire format, and notes for models that do not read them."""

import json
from typing import Any

import pytest

from tests.fakes import strictness, wires
from tests.fakes.tools import TOOLS
from toolcrib.core.messages import (
    AssistantMessage,
    Attachment,
    ModelToolCall,
    ToolCallId,
    ToolResultMessage,
    UserMessage,
)
from toolcrib.providers import anthropic_messages, chat_completions, gemini, ollama, openai_responses
from toolcrib.providers.provider import ModelRequest
from toolcrib.providers.request_check import readable
from toolcrib.providers.wire_history import ToolNameEncoder

IMAGE = Attachment("plan.png", "image/png", b"\x89PNG")
PDF = Attachment("paper.pdf", "application/pdf", b"%PDF-1.7")
PNG_URL, PDF_URL = "data:image/png;base64,iVBORw==", "data:application/pdf;base64,JVBERi0xLjc="
CALL = ModelToolCall(ToolCallId("1"), "fs.read", '{"path": "plan.png"}')
REQUEST = ModelRequest(
    "m",
    (
        UserMessage("What is this?", (IMAGE, PDF)),
        AssistantMessage("", tool_calls=(CALL,)),
        ToolResultMessage(CALL.id, "An image.", attachments=(IMAGE,)),
    ),
    tools=TOOLS,
)
NAMES = ToolNameEncoder.of(REQUEST.tools, REQUEST.messages)


def test_responses() -> None:
    body = openai_responses.request_body(REQUEST, NAMES, provider="openai", reasons=True)

    image = {"type": "input_image", "image_url": PNG_URL, "detail": "auto"}
    file = {"type": "input_file", "filename": "paper.pdf", "file_data": PDF_URL}
    assert body["input"][0]["content"] == [image, file, {"type": "input_text", "text": "What is this?"}]
    assert body["input"][2]["output"] == [image, {"type": "input_text", "text": "An image."}]
    assert strictness.responses_refusal(body, wires.ENCRYPTED) is None


def test_anthropic() -> None:
    body = anthropic_messages.request_body(REQUEST, NAMES, provider="anthropic")

    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw=="}}
    source = {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0xLjc="}
    text = {"type": "text", "text": "What is this?"}
    assert body["messages"][0]["content"] == [image, {"type": "document", "source": source}, text]
    assert body["messages"][2]["content"][0]["content"] == [{"type": "text", "text": "An image."}, image]
    assert strictness.anthropic_refusal(body, wires.SIGNATURE) is None


def test_gemini() -> None:
    body = gemini.request_body(REQUEST, NAMES, provider="gemini")

    image = {"inlineData": {"mimeType": "image/png", "data": "iVBORw=="}}
    assert body["contents"][0]["parts"][0] == image
    assert body["contents"][2]["parts"][1] == image
    assert strictness.gemini_refusal(body, "m", wires.SIGNATURE) is None


def test_chat_completions_show_what_results_bring_after_them() -> None:
    body = chat_completions.request_body(REQUEST, NAMES, provider="openai", max_tokens_field="max_tokens")

    image = {"type": "image_url", "image_url": {"url": PNG_URL}}
    file = {"type": "file", "file": {"filename": "paper.pdf", "file_data": PDF_URL}}
    assert body["messages"][0]["content"] == [image, file, {"type": "text", "text": "What is this?"}]
    assert body["messages"][2]["content"] == "An image."
    assert body["messages"][3]["content"] == [image, {"type": "text", "text": "[Files of the results above: plan.png]"}]
    assert strictness.openai_refusal(body) is None


def test_ollama_gets_images() -> None:
    body = ollama.request_body(REQUEST, NAMES)

    assert body["messages"][0]["images"] == ["iVBORw=="]
    assert strictness.ollama_refusal(body) is None


@pytest.mark.parametrize(("provider", "model"), [("openai", "gpt-3.5-turbo"), ("openai", "o3-mini")])
def test_a_model_without_images_reads_a_note(provider: str, model: str) -> None:
    request = ModelRequest(model, REQUEST.messages, tools=TOOLS)
    first, _, result = readable(provider, request).messages

    assert first == UserMessage(
        "What is this?\n[plan.png is not shown: this model does not read images.]"
        "\n[paper.pdf is not shown: this model does not read PDFs.]"
    )
    assert isinstance(result, ToolResultMessage)
    assert result.attachments == ()
    assert "plan.png is not shown" in result.text


def test_a_message_with_an_image_alone_is_sent() -> None:
    request = ModelRequest("m", (UserMessage("", (IMAGE,)),))
    names = ToolNameEncoder.of((), request.messages)
    bodies: list[dict[str, Any]] = [
        openai_responses.request_body(request, names, provider="openai", reasons=True),
        anthropic_messages.request_body(request, names, provider="anthropic"),
        gemini.request_body(request, names, provider="gemini"),
    ]
    assert all("iVBORw==" in json.dumps(body) for body in bodies)
    assert strictness.anthropic_refusal(bodies[1], wires.SIGNATURE) is None
