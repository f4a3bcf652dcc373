"""What the real services reject and mocks accept. Each check returns the reason of the rejection, or None."""

import re
from collections.abc import Iterator
from typing import Any

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
CALL_ID = re.compile(r"[a-zA-Z0-9_-]{1,40}")
# The fields that OpenAI accepts in a message. It rejects others; compatible servers accept them.
OPENAI_FIELDS = {"role", "content", "tool_calls", "tool_call_id", "name", "refusal"}


def anthropic_refusal(body: dict[str, Any], signature: str) -> str | None:
    return next(_anthropic(body, signature), None)


def openai_refusal(body: dict[str, Any], *, fields: set[str] | None = None) -> str | None:
    return next(_openai(body, fields), None)


def responses_refusal(body: dict[str, Any], encrypted: str) -> str | None:
    return next(_responses(body, encrypted), None)


def gemini_refusal(body: dict[str, Any], model: str, signature: str) -> str | None:
    return next(_gemini(body, model, signature), None)


def ollama_refusal(body: dict[str, Any]) -> str | None:
    return next(_ollama(body), None)


# What Toolcrib may send to the Messages API, as its reference lists the fields. The service rejects others.
ANTHROPIC_FIELDS = {
    "model", "max_tokens", "messages", "stream", "cache_control", "system", "tools", "tool_choice", "thinking",
    "output_config", "temperature",
}  # fmt: skip
ANTHROPIC_BLOCKS: dict[str, tuple[set[str], set[str]]] = {
    # The required and the optional fields by type.
    "text": ({"type", "text"}, {"cache_control"}),
    "thinking": ({"type", "thinking", "signature"}, set()),
    "redacted_thinking": ({"type", "data"}, set()),
    "tool_use": ({"type", "id", "name", "input"}, {"cache_control"}),
    "tool_result": ({"type", "tool_use_id"}, {"content", "is_error", "cache_control"}),
    "image": ({"type", "source"}, {"cache_control"}),
    "document": ({"type", "source"}, {"title", "cache_control"}),
}
# They reject a thinking budget.
ADAPTIVE = re.compile(r"claude-(opus-4-[789]|\w+-[5-9]|mythos|fake)")
# They think always, and so cannot be forced to call a tool.
ALWAYS_THINKING = re.compile(r"claude-(opus-5-5|fable|mythos)")


def _anthropic_options(body: dict[str, Any]) -> Iterator[str]:
    if unknown := body.keys() - ANTHROPIC_FIELDS:
        yield f"{min(unknown)}: Extra inputs are not permitted"
    thinking = body.get("thinking", {})
    adaptive = ADAPTIVE.match(body.get("model", ""))
    if adaptive and thinking.get("type") == "enabled":
        yield "thinking.type.enabled: this model only supports adaptive thinking"
    # The API's version 2026-10-21 has removed it for all models of its vendor.
    if "temperature" in body and body.get("model", "").startswith("claude"):
        yield "temperature: Extra inputs are not permitted"
    if ALWAYS_THINKING.match(body.get("model", "")):
        if thinking.get("type") == "disabled":
            yield '"thinking.type.disabled" is not supported for this model.'
        if body.get("tool_choice", {}).get("type") in ("any", "tool"):
            yield "tool_choice: forced tool use is not supported for this model"
    if thinking.get("type") == "disabled" and body.get("output_config", {}).get("effort") in ("xhigh", "max"):
        yield "output_config.effort: not supported while thinking is disabled"
    if thinking.get("type") == "adaptive" and "budget_tokens" in thinking:
        yield "thinking.adaptive.budget_tokens: Extra inputs are not permitted"
    effort = body.get("output_config", {}).get("effort", "low")
    if effort not in ("low", "medium", "high", "xhigh", "max"):
        yield f"output_config.effort: Input should be 'low', 'medium', 'high', 'xhigh' or 'max': {effort}"
    blocks = [block for message in body.get("messages", ()) for block in message["content"]]
    for block in blocks:
        yield from _fields(block, ANTHROPIC_BLOCKS[block["type"]], "messages")
    marked = [*blocks, *body.get("system", ()), *body.get("tools", ()), body]
    if sum("cache_control" in one for one in marked) > 4:
        yield "A maximum of 4 blocks with cache_control may be provided."


def _anthropic(body: dict[str, Any], signature: str) -> Iterator[str]:
    yield from _anthropic_options(body)
    if not isinstance(body.get("max_tokens"), int):
        yield "max_tokens: Field required"
    messages = body.get("messages")
    if not messages:
        yield "messages: at least one message is required"
        return
    for tool in body.get("tools", ()):
        if not NAME.fullmatch(tool["name"]):
            yield f"tools.name: String should match pattern '^[a-zA-Z0-9_-]{{1,64}}$': {tool['name']}"
        if tool["input_schema"].get("type") != "object":
            yield "tools.input_schema.type: Field required"
    if messages[0]["role"] != "user":
        yield 'messages: first message must use the "user" role'
    if messages[-1]["role"] != "user":
        yield "This model does not support assistant message prefill. The conversation must end with a user message."
    seen: set[str] = set()
    for number, message in enumerate(messages):
        blocks = message["content"]
        if message["role"] not in ("user", "assistant"):
            yield f"messages.{number}.role: unexpected role {message['role']}"
        if not blocks:
            yield f"messages.{number}: all messages must have non-empty content"
            continue
        if number and messages[number - 1]["role"] == message["role"]:
            yield f"messages.{number}: roles must alternate"
        for block in blocks:
            if block["type"] == "text" and not block["text"].strip():
                yield "messages: text content blocks must contain non-whitespace text"
            if block["type"] == "thinking" and block["signature"] != signature:
                yield f"messages.{number}: Invalid `signature` in `thinking` block"
        calls = [block for block in blocks if block["type"] == "tool_use"]
        for call in calls:
            if call["id"] in seen:
                yield "messages: `tool_use` ids must be unique"
            seen.add(call["id"])
            if not NAME.fullmatch(call["name"]) or not CALL_ID.fullmatch(call["id"]):
                yield f"messages.{number}: String should match pattern '^[a-zA-Z0-9_-]+$'"
            if not isinstance(call["input"], dict):
                yield f"messages.{number}.tool_use.input: Input should be a valid dictionary"
        following = messages[number + 1]["content"] if number + 1 < len(messages) else []
        given = [block["tool_use_id"] for block in following[: len(calls)] if block["type"] == "tool_result"]
        if given != [call["id"] for call in calls]:
            yield f"messages.{number}: `tool_use` ids were found without `tool_result` blocks immediately after"
        before = messages[number - 1]["content"] if number else []
        known = {block["id"] for block in before if block["type"] == "tool_use"}
        for block in blocks:
            if block["type"] == "tool_result" and block["tool_use_id"] not in known:
                yield "messages: unexpected `tool_use_id` found in `tool_result` blocks"
    if body.get("thinking", {}).get("type") == "enabled":
        if body["max_tokens"] <= body["thinking"]["budget_tokens"]:
            yield "`max_tokens` must be greater than `thinking.budget_tokens`"
        if "temperature" in body:
            yield "`temperature` may only be set to 1 when thinking is enabled"
        if messages[-1]["content"][0]["type"] == "tool_result":
            first = messages[-2]["content"][0]["type"]
            if first not in ("thinking", "redacted_thinking"):
                yield f"messages: Expected `thinking` or `redacted_thinking`, but found `{first}`"


OPENAI_PARTS: dict[str, tuple[set[str], set[str]]] = {
    # The required and the optional fields by type.
    "text": ({"type", "text"}, set()),
    "image_url": ({"type", "image_url"}, set()),
    "file": ({"type", "file"}, set()),
}


def _openai_parts(message: dict[str, Any], number: int) -> Iterator[str]:
    where = f"messages[{number}].content"
    for part in message["content"]:
        if part["type"] not in OPENAI_PARTS or message["role"] != "user":
            yield f"Invalid value: '{part['type']}'. ({where})"
            continue
        yield from _fields(part, OPENAI_PARTS[part["type"]], where)
        if part["type"] == "image_url":
            yield from _fields(part["image_url"], ({"url"}, {"detail"}), where)
        if part["type"] == "file":
            yield from _fields(part["file"], ({"filename", "file_data"}, set()), where)


def _openai(body: dict[str, Any], fields: set[str] | None) -> Iterator[str]:
    if not body.get("messages"):
        yield "Invalid 'messages': empty array."
    names = [tool["function"]["name"] for tool in body.get("tools", ())]
    if "tool_choice" in body and not names:
        yield "'tool_choice' is only allowed when 'tools' are specified."
    if "tools" in body and not names:
        yield "Invalid 'tools': empty array."
    waiting: list[str] = []
    for number, message in enumerate(body.get("messages", ())):
        role = message["role"]
        if isinstance(message.get("content"), list):
            yield from _openai_parts(message, number)
        if fields is not None and message.keys() - fields:
            yield f"Unknown parameter: 'messages[{number}].{min(message.keys() - fields)}'."
        if role == "tool":
            if message["tool_call_id"] not in waiting:
                yield "messages with role 'tool' must be a response to a preceding message with 'tool_calls'."
            else:
                waiting.remove(message["tool_call_id"])
            continue
        if waiting:
            yield f"An assistant message with 'tool_calls' must be followed by tool messages: {waiting}"
        if role not in ("system", "user", "assistant"):
            yield f"Invalid value: '{role}'."
        calls = message.get("tool_calls")
        if calls == []:
            yield f"Invalid 'messages[{number}].tool_calls': empty array."
        if not message.get("content") and not calls:
            yield f"Invalid value for 'content': expected a string, got null. (messages[{number}])"
        for call in calls or ():
            names.append(call["function"]["name"])
            if not CALL_ID.fullmatch(call["id"]):
                yield f"Invalid 'messages[{number}].tool_calls[0].id': string too long."
            if not isinstance(call["function"]["arguments"], str):
                yield "Invalid type for 'arguments': expected a string."
        waiting = [call["id"] for call in calls or ()]
        if len(set(waiting)) != len(waiting):
            yield "Duplicate tool call ids."
    if waiting:
        yield f"An assistant message with 'tool_calls' must be followed by tool messages: {waiting}"
    for name in names:
        if not NAME.fullmatch(name):
            yield f"Invalid 'tools[0].function.name': '{name}' does not match pattern '^[a-zA-Z0-9_-]+$'."


# What Toolcrib may send to the Responses API, as its reference lists the fields. The service rejects others.
RESPONSES_FIELDS = {
    "model", "input", "instructions", "stream", "store", "tools", "tool_choice", "max_output_tokens", "include",
    "reasoning", "temperature", "prompt_cache_key",
}  # fmt: skip
RESPONSES_ITEMS: dict[str, tuple[set[str], set[str]]] = {
    # The required and the optional fields by type.
    "message": ({"role", "content"}, {"type", "phase", "status", "id"}),
    "reasoning": ({"id", "summary", "type"}, {"encrypted_content", "content", "status"}),
    "function_call": ({"type", "call_id", "name", "arguments"}, {"id", "status"}),
    "function_call_output": ({"type", "call_id", "output"}, {"id", "status"}),
}
RESPONSES_PARTS = {
    "input_text": ({"type", "text"}, set[str]()),
    "input_image": ({"type", "image_url"}, {"detail"}),
    "input_file": ({"type", "filename", "file_data"}, {"detail"}),
}
RESPONSES_TOOL = ({"type", "name", "parameters", "strict"}, {"description"})
EFFORTS = {"none", "minimal", "low", "medium", "high", "xhigh", "max"}


def _fields(value: dict[str, Any], known: tuple[set[str], set[str]], where: str) -> Iterator[str]:
    required, optional = known
    if missing := required - value.keys():
        yield f"Missing required parameter: '{where}.{min(missing)}'."
    if unknown := value.keys() - required - optional:
        yield f"Unknown parameter: '{where}.{min(unknown)}'."


def _responses(body: dict[str, Any], encrypted: str) -> Iterator[str]:
    yield from _fields(body, ({"model", "input"}, RESPONSES_FIELDS), "")
    if not body.get("input"):
        yield "One of \"input\" or \"previous_response_id\" or 'prompt' or 'conversation' must be provided."
    reasons = not body["model"].startswith(("gpt-4", "gpt-3.5"))
    if not reasons and "reasoning" in body:
        yield "Unsupported parameter: 'reasoning' is not supported with this model."
    if not reasons and "reasoning.encrypted_content" in body.get("include", ()):
        yield "Encrypted content is not supported with this model."
    if reasons and "temperature" in body:
        yield "Unsupported parameter: 'temperature' is not supported with this model."
    if body.get("reasoning", {}).get("effort", "low") not in EFFORTS:
        yield f"Invalid value: '{body['reasoning']['effort']}'."
    if "tool_choice" in body and not body.get("tools"):
        yield "Tool choice is only allowed when 'tools' are specified."
    for number, tool in enumerate(body.get("tools", ())):
        yield from _fields(tool, RESPONSES_TOOL, f"tools[{number}]")
        if not NAME.fullmatch(tool.get("name", "")):
            yield f"Invalid 'tools[{number}].name': string does not match pattern '^[a-zA-Z0-9_-]+$'."
    yield from _response_items(body.get("input", ()), encrypted)


def _response_items(items: list[dict[str, Any]], encrypted: str) -> Iterator[str]:
    called: list[str] = []
    waiting: list[str] = []
    for number, item in enumerate(items):
        where, kind = f"input[{number}]", item.get("type", "message")
        if kind not in RESPONSES_ITEMS:
            yield f"Invalid value: '{kind}'. ({where}.type)"
            continue
        yield from _fields(item, RESPONSES_ITEMS[kind], where)
        match kind:
            case "message":
                if item["role"] not in ("user", "assistant", "system", "developer"):
                    yield f"Invalid value: '{item['role']}'. ({where}.role)"
                if not item["content"]:
                    yield f"Invalid '{where}.content': empty."
                if isinstance(item["content"], list):
                    for part in item["content"]:
                        yield from _fields(part, RESPONSES_PARTS[part["type"]], f"{where}.content")
            case "reasoning":
                if item.get("encrypted_content") != encrypted:
                    yield "The encrypted content could not be verified. (invalid_encrypted_content)"
                after = items[number + 1] if number + 1 < len(items) else {}
                if after.get("type") != "function_call" and after.get("role") != "assistant":
                    yield f"Item '{item['id']}' of type 'reasoning' was provided without its required following item."
            case "function_call":
                if item["call_id"] in called:
                    yield f"Duplicate call_id {item['call_id']!r}."
                if not NAME.fullmatch(item["name"]) or not CALL_ID.fullmatch(item["call_id"]):
                    yield f"Invalid '{where}.name': string does not match pattern."
                if not isinstance(item["arguments"], str):
                    yield f"Invalid type for '{where}.arguments': expected a string."
                called.append(item["call_id"])
                waiting.append(item["call_id"])
            case "function_call_output":
                if item["call_id"] not in waiting:
                    yield f"No tool call found for function call output with call_id {item['call_id']}."
                else:
                    waiting.remove(item["call_id"])
    if waiting:
        yield f"No tool output found for function call {waiting[0]}."


# What Toolcrib may send to Gemini, as its reference lists the fields. The service rejects others.
GEMINI_FIELDS = (
    {"contents"},
    {"systemInstruction", "tools", "toolConfig", "generationConfig"},
)
GEMINI_OPTIONS = (set[str](), {"maxOutputTokens", "temperature", "thinkingConfig"})
GEMINI_THINKING = (set[str](), {"includeThoughts", "thinkingLevel", "thinkingBudget"})
GEMINI_DECLARATION = ({"name"}, {"description", "parametersJsonSchema"})
GEMINI_PART = (set[str](), {"text", "functionCall", "functionResponse", "inlineData", "thoughtSignature"})
GEMINI_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}")


def _gemini(body: dict[str, Any], model: str, signature: str) -> Iterator[str]:
    yield from _fields(body, GEMINI_FIELDS, "")
    options = body.get("generationConfig", {})
    yield from _fields(options, GEMINI_OPTIONS, "generation_config")
    thinking = options.get("thinkingConfig", {})
    yield from _fields(thinking, GEMINI_THINKING, "thinking_config")
    if "thinkingLevel" in thinking and "thinkingBudget" in thinking:
        yield "You can only set only one of thinking budget and thinking level."
    if thinking.get("thinkingLevel", "LOW") not in ("MINIMAL", "LOW", "MEDIUM", "HIGH", "XHIGH"):
        yield f"Invalid value at 'thinking_level': {thinking['thinkingLevel']}"
    for tool in body.get("tools", ()):
        for declared in tool["functionDeclarations"]:
            yield from _fields(declared, GEMINI_DECLARATION, "function_declarations")
            if not GEMINI_NAME.fullmatch(declared["name"]):
                yield f"Invalid function name: {declared['name']}"
    contents = body.get("contents")
    if not contents:
        yield "GenerateContentRequest.contents: contents is not specified"
        return
    for number, content in enumerate(contents):
        yield from _gemini_content(contents, number, content, signed=model.startswith(("gemini-3", "gemini-fake")))
        for part in content["parts"]:
            given = part.get("thoughtSignature", signature)
            if given not in (signature, "skip_thought_signature_validator"):
                yield "Corrupted thought signature."
    if contents[-1]["role"] != "user":
        yield "Please ensure that the conversation ends with a user role."


def _gemini_content(
    contents: list[dict[str, Any]], number: int, content: dict[str, Any], *, signed: bool
) -> Iterator[str]:
    if content["role"] not in ("user", "model"):
        yield "Please use a valid role: user, model."
    if not content["parts"]:
        yield "Unable to submit request because it must have at least one part."
    for part in content["parts"]:
        yield from _fields(part, GEMINI_PART, "parts")
        if len(part.keys() - {"thoughtSignature"}) != 1:
            yield "parts: exactly one kind of data is required."
        if part.get("text") == "":
            yield "Unable to submit request because it has an empty text parameter."
    before = contents[number - 1]["parts"] if number else []
    calls = [part["functionCall"] for part in before if "functionCall" in part]
    results = [part["functionResponse"] for part in content["parts"] if "functionResponse" in part]
    if content["role"] == "user" and [call["id"] for call in calls] != [result["id"] for result in results]:
        yield "The number of function response parts must equal the number of function call parts of the call turn."
    own = [part for part in content["parts"] if "functionCall" in part]
    if own and not before:
        yield "Please ensure that function call turn comes immediately after a user turn."
    if own and signed and "thoughtSignature" not in own[0]:
        yield f"Function call `{own[0]['functionCall']['name']}` is missing a `thought_signature`."


def _ollama(body: dict[str, Any]) -> Iterator[str]:
    if not body.get("model"):
        yield "model is required"
    for message in body.get("messages", ()):
        if message["role"] not in ("system", "user", "assistant", "tool"):
            yield f"invalid role: {message['role']}"
        if not isinstance(message["content"], str):
            yield "json: cannot unmarshal object into Go struct field of type string"
        for call in message.get("tool_calls", ()):
            if not isinstance(call["function"]["arguments"], dict):
                yield "json: cannot unmarshal string into Go struct field of type api.ToolCallFunctionArguments"
        if message["role"] == "tool" and not message.get("tool_name"):
            yield "tool messages need a tool_name"
    if body.get("tools") and "toolless" in body["model"]:
        yield f"registry.ollama.ai/library/{body['model']} does not support tools"
