"""The fake rejects what the real services reject; otherwise the tests against it would prove nothing."""

from copy import deepcopy
from typing import Any

import pytest

from tests.fakes.strictness import (
    OPENAI_FIELDS,
    anthropic_refusal,
    gemini_refusal,
    ollama_refusal,
    openai_refusal,
    responses_refusal,
)
from tests.fakes.wires import ENCRYPTED, SIGNATURE

USE = {"type": "tool_use", "id": "1", "name": "read", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "1", "content": "x"}
TEXT = {"type": "text", "text": "Hi."}
ANTHROPIC = {
    "max_tokens": 9,
    "tools": [{"name": "read", "description": "", "input_schema": {"type": "object"}}],
    "messages": [
        {"role": "user", "content": [TEXT]},
        {"role": "assistant", "content": [USE]},
        {"role": "user", "content": [RESULT]},
    ],
}
CALL = {"id": "1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
OPENAI = {
    "messages": [
        {"role": "user", "content": "Hi."},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "1", "content": "x"},
    ]
}

ANTHROPIC_FAULTS = {
    "no limit": ("max_tokens", lambda body: body.pop("max_tokens")),
    "no messages": ("at least one", lambda body: body.update(messages=[])),
    "dotted name": ("match pattern", lambda body: body["tools"][0].update(name="fs.read")),
    "orphan call": ("without `tool_result`", lambda body: body["messages"][2].update(content=[TEXT])),
    "result late": ("without `tool_result`", lambda body: body["messages"][2].update(content=[TEXT, RESULT])),
    "orphan result": ("unexpected `tool_use_id`", lambda body: body["messages"][1].update(content=[TEXT])),
    "empty text": ("non-whitespace", lambda body: body["messages"][0].update(content=[{"type": "text", "text": " "}])),
    "no content": ("non-empty", lambda body: body["messages"][0].update(content=[])),
    "assistant first": ("first message", lambda body: body["messages"].pop(0)),
    "assistant last": ("prefill", lambda body: body["messages"].append({"role": "assistant", "content": [TEXT]})),
    "system inside": ("unexpected role", lambda body: body["messages"][1].update(role="system")),
    "two in a row": ("alternate", lambda body: body["messages"].append({"role": "user", "content": [TEXT]})),
    "input no object": ("dictionary", lambda body: body["messages"][1].update(content=[USE | {"input": "{}"}])),
    "ids twice": ("unique", lambda body: body["messages"].extend(deepcopy(body["messages"][1:]))),
    "forged thinking": (
        "signature",
        lambda body: body["messages"][1].update(content=[{"type": "thinking", "thinking": "", "signature": "x"}, USE]),
    ),
    "unknown field": ("Extra inputs", lambda body: body.update(top_k=1)),
    "unknown field of a block": ("Unknown parameter", lambda body: body["messages"][0]["content"][0].update(x=1)),
    "budget of a new model": (
        "only supports adaptive",
        lambda body: body.update(
            model="claude-opus-4-7", max_tokens=9000, thinking={"type": "enabled", "budget_tokens": 2000}
        ),
    ),
    "temperature": ("Extra inputs", lambda body: body.update(model="claude-sonnet-4-6", temperature=1)),
    "no thinking of a model that always thinks": (
        "is not supported for this model",
        lambda body: body.update(model="claude-opus-5-5", thinking={"type": "disabled"}),
    ),
    "forced call of a model that always thinks": (
        "forced tool use",
        lambda body: body.update(model="claude-fable-5-2", tool_choice={"type": "any"}),
    ),
    "unknown effort": ("effort", lambda body: body.update(output_config={"effort": "minimal"})),
    "thinking lost": (
        "Expected `thinking`",
        lambda body: body.update(max_tokens=9000, thinking={"type": "enabled", "budget_tokens": 2000}),
    ),
}
OPENAI_FAULTS = {
    "no messages": ("empty array", lambda body: body.update(messages=[])),
    "dotted name": ("match pattern", lambda body: body.update(tools=[{"function": {"name": "fs.read"}}])),
    "orphan call": ("must be followed", lambda body: body["messages"].pop()),
    "interrupted": ("must be followed", lambda body: body["messages"].insert(2, {"role": "user", "content": "x"})),
    "orphan result": ("must be a response", lambda body: body["messages"].pop(1)),
    "no content": ("expected a string", lambda body: body["messages"][0].update(content="")),
    "no calls": ("empty array", lambda body: body["messages"][1].update(tool_calls=[])),
    "long id": ("too long", lambda body: body["messages"][1].update(tool_calls=[CALL | {"id": "x" * 41}])),
    "unknown field": ("Unknown parameter", lambda body: body["messages"][1].update(reasoning_content="x")),
    "choice without tools": ("only allowed", lambda body: body.update(tool_choice="auto")),
}

ITEM_CALL = {"type": "function_call", "call_id": "1", "name": "read", "arguments": "{}"}
REASONING = {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": ENCRYPTED}
RESPONSES = {
    "model": "gpt-5",
    "input": [
        {"role": "user", "content": "Hi."},
        REASONING,
        ITEM_CALL,
        {"type": "function_call_output", "call_id": "1", "output": "x"},
    ],
    "tools": [{"type": "function", "name": "read", "parameters": {}, "strict": False}],
}
RESPONSES_FAULTS = {
    "unknown field": ("Unknown parameter", lambda body: body.update(messages=[])),
    "no input": ("must be provided", lambda body: body.update(input=[])),
    "temperature": ("Unsupported parameter", lambda body: body.update(temperature=1)),
    "reasoning of a chat model": (
        "not supported with this model",
        lambda body: body.update(model="gpt-4o", reasoning={"effort": "low"}),
    ),
    "unknown effort": ("Invalid value", lambda body: body.update(reasoning={"effort": "extreme"})),
    "strict missing": ("Missing required", lambda body: body["tools"][0].pop("strict")),
    "dotted name": ("match pattern", lambda body: body["tools"][0].update(name="fs.read")),
    "unknown field of an item": ("Unknown parameter", lambda body: body["input"][0].update(attachments=[])),
    "orphan call": ("No tool output found", lambda body: body["input"].pop()),
    "orphan result": ("No tool call found", lambda body: body["input"].__delitem__(slice(1, 3))),
    "reasoning alone": ("required following item", lambda body: body["input"].insert(0, REASONING)),
    "forged reasoning": (
        "could not be verified",
        lambda body: body["input"].__setitem__(1, REASONING | {"encrypted_content": "x"}),
    ),
}
FUNCTION = {"functionCall": {"id": "1", "name": "read", "args": {}}, "thoughtSignature": SIGNATURE}
GEMINI = {
    "contents": [
        {"role": "user", "parts": [{"text": "Hi."}]},
        {"role": "model", "parts": [FUNCTION]},
        {"role": "user", "parts": [{"functionResponse": {"id": "1", "name": "read", "response": {"output": "x"}}}]},
    ],
    "generationConfig": {"thinkingConfig": {"thinkingLevel": "LOW"}},
}
GEMINI_FAULTS = {
    "unknown field": ("Unknown parameter", lambda body: body.update(messages=[])),
    "no contents": ("not specified", lambda body: body.update(contents=[])),
    "level and budget": (
        "only one of",
        lambda body: body["generationConfig"]["thinkingConfig"].update(thinkingBudget=1),
    ),
    "no signature": (
        "missing a `thought_signature`",
        lambda body: body["contents"][1]["parts"][0].pop("thoughtSignature"),
    ),
    "forged signature": ("Corrupted", lambda body: body["contents"][1]["parts"][0].update(thoughtSignature="x")),
    "orphan call": ("must equal", lambda body: body["contents"][2].update(parts=[{"text": "x"}])),
    "orphan result": ("must equal", lambda body: body["contents"][1].update(parts=[{"text": "x"}])),
    "empty text": ("empty text", lambda body: body["contents"][0].update(parts=[{"text": ""}])),
    "no parts": ("at least one part", lambda body: body["contents"][0].update(parts=[])),
    "call first": ("after a user turn", lambda body: body["contents"].pop(0)),
    "model last": ("ends with a user", lambda body: body["contents"].pop()),
    "other role": ("valid role", lambda body: body["contents"][0].update(role="system")),
}


@pytest.mark.parametrize(("reason", "spoil"), RESPONSES_FAULTS.values(), ids=RESPONSES_FAULTS)
def test_the_fake_rejects_like_responses(reason: str, spoil: Any) -> None:
    body: dict[str, Any] = deepcopy(RESPONSES)
    assert responses_refusal(body, ENCRYPTED) is None
    spoil(body)
    assert reason in (responses_refusal(body, ENCRYPTED) or "")


@pytest.mark.parametrize(("reason", "spoil"), GEMINI_FAULTS.values(), ids=GEMINI_FAULTS)
def test_the_fake_rejects_like_gemini(reason: str, spoil: Any) -> None:
    body: dict[str, Any] = deepcopy(GEMINI)
    assert gemini_refusal(body, "gemini-3.5-flash", SIGNATURE) is None
    spoil(body)
    assert reason in (gemini_refusal(body, "gemini-3.5-flash", SIGNATURE) or "")


def test_valid_requests_are_accepted() -> None:
    assert anthropic_refusal(deepcopy(ANTHROPIC), SIGNATURE) is None
    assert openai_refusal(deepcopy(OPENAI), fields=OPENAI_FIELDS) is None


@pytest.mark.parametrize(("reason", "spoil"), ANTHROPIC_FAULTS.values(), ids=ANTHROPIC_FAULTS)
def test_the_fake_rejects_like_anthropic(reason: str, spoil: Any) -> None:
    body: dict[str, Any] = deepcopy(ANTHROPIC)
    spoil(body)
    assert reason in (anthropic_refusal(body, SIGNATURE) or "")


@pytest.mark.parametrize(("reason", "spoil"), OPENAI_FAULTS.values(), ids=OPENAI_FAULTS)
def test_the_fake_rejects_like_openai(reason: str, spoil: Any) -> None:
    body: dict[str, Any] = deepcopy(OPENAI)
    spoil(body)
    assert reason in (openai_refusal(body, fields=OPENAI_FIELDS) or "")


def test_the_fake_rejects_like_ollama() -> None:
    call = {"function": {"name": "read", "arguments": "{}"}}
    messages = [{"role": "assistant", "content": "", "tool_calls": [call]}]
    assert "cannot unmarshal" in (ollama_refusal({"model": "m", "messages": messages}) or "")
    assert "does not support tools" in (ollama_refusal({"model": "toolless", "messages": [], "tools": [call]}) or "")
