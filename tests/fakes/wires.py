"""Scenes in the three wire formats, as the real services send them. Each piece is one write to the socket."""

import json
from typing import Any

from tests.fakes.scripted_turns import Scene, SceneCall
from toolcrib.core.model_stream import FinishReason

SIGNATURE = "c2lnbmVkIGJ5IHRoZSBmYWtl"


def anthropic(scene: Scene, model: str = "claude-fake") -> list[bytes]:
    usage = {"input_tokens": scene.input_tokens, "output_tokens": 1, "cache_read_input_tokens": 0}
    message = {"id": "msg_fake", "type": "message", "role": "assistant", "model": model, "content": [], "usage": usage}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": message}, {"type": "ping"}]
    blocks: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []
    if scene.thinking:
        deltas = [{"type": "thinking_delta", "thinking": piece} for piece in pieces(scene.thinking)]
        deltas.append({"type": "signature_delta", "signature": SIGNATURE})
        blocks.append(({"type": "thinking", "thinking": "", "signature": ""}, deltas))
    if scene.text:
        blocks.append(
            ({"type": "text", "text": ""}, [{"type": "text_delta", "text": piece} for piece in pieces(scene.text)])
        )
    for call in scene.calls:
        parts = ["", *pieces(call.arguments)] if call.arguments != "{}" else [""]
        start = {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}
        blocks.append((start, [{"type": "input_json_delta", "partial_json": part} for part in parts]))
    for index, (start, deltas) in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": start})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    reasons = {
        FinishReason.STOP: "end_turn",
        FinishReason.TOOL_CALLS: "tool_use",
        FinishReason.LENGTH: "max_tokens",
        FinishReason.REFUSAL: "refusal",
    }
    delta = {"stop_reason": reasons[scene.reason], "stop_sequence": None}
    events.append({"type": "message_delta", "delta": delta, "usage": {"output_tokens": scene.output_tokens}})
    events.append({"type": "message_stop"})
    return [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events]


def chat_completions(scene: Scene, model: str = "gpt-fake") -> list[bytes]:
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"reasoning_content": piece} for piece in pieces(scene.thinking)]
    deltas += [{"content": piece} for piece in pieces(scene.text)]
    for index, call in enumerate(scene.calls):
        function = {"name": call.name, "arguments": ""}
        deltas.append({"tool_calls": [{"index": index, "id": call.id, "type": "function", "function": function}]})
        deltas += [
            {"tool_calls": [{"index": index, "function": {"arguments": piece}}]} for piece in pieces(call.arguments)
        ]
    reasons = {
        FinishReason.STOP: "stop",
        FinishReason.TOOL_CALLS: "tool_calls",
        FinishReason.LENGTH: "length",
        FinishReason.REFUSAL: "content_filter",
    }
    head = {"id": "chatcmpl-fake", "object": "chat.completion.chunk", "created": 1, "model": model}
    chunks = [head | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    chunks.append(head | {"choices": [{"index": 0, "delta": {}, "finish_reason": reasons[scene.reason]}]})
    total = scene.input_tokens + scene.output_tokens
    usage = {
        "prompt_tokens": scene.input_tokens,
        "completion_tokens": scene.output_tokens,
        "total_tokens": total,
        "prompt_tokens_details": {"cached_tokens": 0},
    }
    chunks.append(head | {"choices": [], "usage": usage})
    return [*(sse(chunk) for chunk in chunks), b"data: [DONE]\n\n"]


def ollama(scene: Scene, model: str = "llama-fake") -> list[bytes]:
    head = {"model": model, "created_at": "2026-01-01T00:00:00Z"}
    messages: list[dict[str, Any]] = [{"thinking": piece, "content": ""} for piece in pieces(scene.thinking)]
    messages += [{"content": piece} for piece in pieces(scene.text)]
    messages += [{"content": "", "tool_calls": [_ollama_call(call)]} for call in scene.calls]
    lines = [head | {"message": {"role": "assistant", **message}, "done": False} for message in messages]
    last = {
        "message": {"role": "assistant", "content": ""},
        "done": True,
        # The real service sends this value even after tool calls.
        "done_reason": "length" if scene.reason is FinishReason.LENGTH else "stop",
        "prompt_eval_count": scene.input_tokens,
        "eval_count": scene.output_tokens,
    }
    return [json.dumps(line).encode() + b"\n" for line in (*lines, head | last)]


def sse(value: object) -> bytes:
    return f"data: {json.dumps(value)}\n\n".encode()


def pieces(text: str, size: int = 6) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]


def _ollama_call(call: SceneCall) -> dict[str, Any]:
    return {"function": {"name": call.name, "arguments": json.loads(call.arguments)}}
