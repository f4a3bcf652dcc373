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


def ollama_refusal(body: dict[str, Any]) -> str | None:
    return next(_ollama(body), None)


def _anthropic(body: dict[str, Any], signature: str) -> Iterator[str]:
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
