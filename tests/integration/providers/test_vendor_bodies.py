"""Our requests are those that the vendors' own SDKs send for the same conversation of two turns.

The SDKs are imported by the tests that use them: every test process collects this module, and they take seconds.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.fakes.grammar import received, taken
from tests.fakes.memory import WIRES
from tests.fakes.model_server import KEY, Answer, ModelServer
from tests.fakes.scripted_turns import AFTER_RESULTS, THINK_AND_CALL
from tests.fakes.tools import TOOLS
from tests.integration.providers.conftest import reach
from toolcrib.core.messages import Attachment, Message, SystemMessage, ToolResultMessage, UserMessage
from toolcrib.core.model_options import Effort
from toolcrib.providers.provider import ModelRequest
from toolcrib.providers.provider_registry import ProviderRegistry

IMAGE, PDF = Attachment("plan.png", "image/png", b"\x89PNG"), Attachment("paper.pdf", "application/pdf", b"%PDF-1.7")
PNG64, PDF64 = "iVBORw==", "JVBERi0xLjc="
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
DESCRIBED = {"fs_read": "Read a file.", "list_directory": "List a directory."}
OUTPUTS = {"call_one": "First.", "call_two": "Second."}
QUESTION = "Look."


async def openai_responses(url: str) -> None:
    import openai

    async with openai.AsyncOpenAI(api_key=KEY, base_url=f"{url}/v1") as client:
        parts = [
            {"type": "input_image", "image_url": f"data:image/png;base64,{PNG64}", "detail": "auto"},
            {"type": "input_file", "filename": "paper.pdf", "file_data": f"data:application/pdf;base64,{PDF64}"},
            {"type": "input_text", "text": QUESTION},
        ]
        tools = [
            {"type": "function", "name": name, "description": text, "parameters": SCHEMA, "strict": False}
            for name, text in DESCRIBED.items()
        ]
        sent: list[Any] = [{"role": "user", "content": parts}]
        responses: Any = client.responses
        for _ in range(2):
            stream = await responses.create(
                model="gpt-5.6-terra",
                instructions="Be brief.",
                input=sent,
                tools=tools,
                tool_choice="auto",
                max_output_tokens=2_000,
                store=False,
                include=["reasoning.encrypted_content"],
                reasoning={"summary": "auto", "effort": "high"},
                stream=True,
            )
            *_, last = [event async for event in stream]
            sent += last.response.output
            sent += [
                {"type": "function_call_output", "call_id": item.call_id, "output": OUTPUTS[item.call_id]}
                for item in last.response.output
                if item.type == "function_call"
            ]


async def chat_completions(url: str) -> None:
    import openai

    async with openai.AsyncOpenAI(api_key=KEY, base_url=f"{url}/v1") as client:
        parts = [
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG64}"}},
            {"type": "file", "file": {"filename": "paper.pdf", "file_data": f"data:application/pdf;base64,{PDF64}"}},
            {"type": "text", "text": QUESTION},
        ]
        tools = [
            {"type": "function", "function": {"name": name, "description": text, "parameters": SCHEMA}}
            for name, text in DESCRIBED.items()
        ]
        sent: list[Any] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": parts}]
        for _ in range(2):
            answer = client.chat.completions.stream(
                model="m",
                messages=sent,
                tools=tools,  # type: ignore[arg-type]
                tool_choice="auto",
                max_tokens=2_000,
                reasoning_effort="high",
                stream_options={"include_usage": True},
            )
            async with answer as stream:
                message = (await stream.get_final_completion()).choices[0].message
            sent.append(message.to_dict(exclude_none=False))
            sent += [
                {"role": "tool", "tool_call_id": call.id, "content": OUTPUTS[call.id]}
                for call in message.tool_calls or ()
            ]


async def anthropic_messages(url: str) -> None:
    import anthropic

    async with anthropic.AsyncAnthropic(api_key=KEY, base_url=url) as client:
        blocks = [
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG64}},
            {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": PDF64}},
            {"type": "text", "text": QUESTION},
        ]
        tools = [{"name": name, "description": text, "input_schema": SCHEMA} for name, text in DESCRIBED.items()]
        sent: list[Any] = [{"role": "user", "content": blocks}]
        for _ in range(2):
            answer = client.messages.stream(
                model="claude-sonnet-5-5",
                max_tokens=2_000,
                system=[{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
                messages=sent,
                tools=tools,  # type: ignore[arg-type]
                tool_choice={"type": "auto"},
                thinking={"type": "adaptive", "display": "summarized"},
                output_config={"effort": "high"},
                cache_control={"type": "ephemeral"},
            )
            async with answer as stream:
                content = (await stream.get_final_message()).content
            results = [
                {"type": "tool_result", "tool_use_id": block.id, "content": OUTPUTS[block.id]}
                for block in content
                if block.type == "tool_use"
            ]
            sent += [{"role": "assistant", "content": content}, {"role": "user", "content": results}]


async def gemini(url: str) -> None:
    from google import genai
    from google.genai import types

    client = genai.Client(api_key=KEY, http_options=types.HttpOptions(base_url=url))
    declarations = [
        types.FunctionDeclaration(name=name, description=text, parameters_json_schema=SCHEMA)
        for name, text in DESCRIBED.items()
    ]
    mode = types.FunctionCallingConfig(mode=types.FunctionCallingConfigMode.AUTO)
    config = types.GenerateContentConfig(
        system_instruction=types.Content(parts=[types.Part(text="Be brief.")]),
        tools=[types.Tool(function_declarations=declarations)],
        tool_config=types.ToolConfig(function_calling_config=mode),
        max_output_tokens=2_000,
        thinking_config=types.ThinkingConfig(include_thoughts=True, thinking_level=types.ThinkingLevel.HIGH),
        automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
    )
    chat = client.aio.chats.create(model="gemini-3.5-flash", config=config)
    parts: list[Any] = [
        types.Part.from_bytes(data=IMAGE.data, mime_type="image/png"),
        types.Part.from_bytes(data=PDF.data, mime_type="application/pdf"),
        types.Part(text=QUESTION),
    ]
    for _ in range(2):
        calls = []
        async for chunk in await chat.send_message_stream(parts):
            calls += chunk.function_calls or []
        parts = [
            types.Part(
                function_response=types.FunctionResponse(
                    id=call.id, name=call.name, response={"output": OUTPUTS[str(call.id)]}
                )
            )
            for call in calls
        ]
    await client.aio.aclose()


Vendor = Callable[[str], Awaitable[None]]
CASES: dict[str, tuple[Vendor, str, str]] = {
    "openai": (openai_responses, "gpt-5.6-terra", "responses"),
    "openai-compatible": (chat_completions, "m", "openai"),
    "anthropic": (anthropic_messages, "claude-sonnet-5-5", "anthropic"),
    "gemini": (gemini, "gemini-3.5-flash", "gemini"),
}


# Of google-genai, which uses aiohttp where it is installed.
@pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning")
@pytest.mark.parametrize("name", CASES)
async def test_our_requests_are_those_of_the_vendors_sdk(
    name: str, providers: ProviderRegistry, fake: ModelServer
) -> None:
    vendor, model, wire = CASES[name]
    answers = [Answer(tuple(WIRES[wire](scene))) for scene in (THINK_AND_CALL, AFTER_RESULTS)]

    fake.say(*answers)
    await vendor(fake.url)
    theirs = [_comparable(request.body) for request in fake.received]
    fake.received.clear()

    fake.say(*answers)
    access = await reach(name, providers, fake.url)
    messages: list[Message] = [SystemMessage("Be brief."), UserMessage(QUESTION, (IMAGE, PDF))]
    for _ in range(2):
        request = ModelRequest(model, tuple(messages), tools=TOOLS, max_output_tokens=2_000, effort=Effort.HIGH)
        message = received(await taken(access.provider.stream(request, access.credentials))).message()
        messages += [message, *(ToolResultMessage(call.id, OUTPUTS[call.id]) for call in message.tool_calls)]
    ours = [_comparable(request.body) for request in fake.received]

    assert len(ours) == 2
    assert ours == theirs


# What the SDKs send back of an answer although its reference calls it optional, and we leave out.
_OPTIONAL = {"status", "annotations", "logprobs", "parsed", "parsed_arguments", "reasoning_content", "refusal", "index"}

# Names of protobuf fields, which Google's servers accept in both forms.
_OTHER_FORM = {
    "mime_type": "mimeType",
    "parameters_json_schema": "parametersJsonSchema",
    "include_thoughts": "includeThoughts",
    "thinking_level": "thinkingLevel",
}


def _comparable(value: Any) -> Any:
    """The request without what makes no difference."""
    if isinstance(value, list):
        return [_comparable(one) for one in value]
    if not isinstance(value, dict):
        return value
    plain = {
        _OTHER_FORM.get(key, key): _comparable(one)
        for key, one in value.items()
        if one is not None and key not in _OPTIONAL
    }
    if plain.get("type") in ("message", "function_call"):
        # Items of an earlier answer have ids only where the provider has stored them.
        plain.pop("id", None)
    if plain.get("type") == "message":
        del plain["type"]
        plain["content"] = "".join(part["text"] for part in plain["content"])
    if "contents" in plain:
        plain["contents"] = _merged(plain["contents"])
    return plain


def _merged(contents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Contents as one per turn: Google's SDK sends an answer back in the chunks in which it came, with its thoughts."""
    turns: list[dict[str, Any]] = []
    for content in contents:
        if not turns or turns[-1]["role"] != content["role"]:
            turns.append({"role": content["role"], "parts": []})
        for part in content["parts"]:
            before = turns[-1]["parts"][-1:]
            if part.get("thought") or part == {"text": ""}:
                continue
            if "text" in part and before and before[0].keys() == {"text"} == part.keys():
                before[0]["text"] += part["text"]
            else:
                turns[-1]["parts"].append(dict(part))
    return turns
