"""Scenes in the wire formats, as the real services send them. Each piece is one write to the socket."""

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


ENCRYPTED = "ZW5jcnlwdGVkIGJ5IHRoZSBmYWtl"


def responses(scene: Scene, model: str = "gpt-fake") -> list[bytes]:
    """OpenAI's Responses API: reasoning, one message, then calls; every item is announced and ended."""
    events: list[dict[str, Any]] = []
    output: list[dict[str, Any]] = []

    def give(type_: str, **fields: Any) -> None:
        events.append({"type": type_, **fields, "sequence_number": len(events)})

    def item(added: dict[str, Any], done: dict[str, Any], deltas: list[tuple[str, dict[str, Any]]]) -> None:
        index = len(output)
        give("response.output_item.added", output_index=index, item=added)
        for type_, fields in deltas:
            give(type_, item_id=added["id"], output_index=index, **fields)
        give("response.output_item.done", output_index=index, item=done)
        output.append(done)

    head = {"id": "resp_fake", "object": "response", "model": model, "created_at": 1}
    give("response.created", response=head | {"status": "in_progress", "output": []})
    give("response.in_progress", response=head | {"status": "in_progress", "output": []})
    if scene.thinking:
        start = {"type": "reasoning", "id": "rs_fake", "summary": []}
        part = {"type": "summary_text", "text": ""}
        deltas = [("response.reasoning_summary_part.added", {"summary_index": 0, "part": part})]
        deltas += [
            ("response.reasoning_summary_text.delta", {"summary_index": 0, "delta": piece, "obfuscation": "x"})
            for piece in pieces(scene.thinking)
        ]
        item(start, start | {"summary": [part | {"text": scene.thinking}], "encrypted_content": ENCRYPTED}, deltas)
    if scene.text:
        refused = scene.reason is FinishReason.REFUSAL
        kind = "refusal" if refused else "output_text"
        start = {"type": "message", "id": "msg_fake", "role": "assistant", "status": "in_progress", "content": []}
        content = {"type": kind, "refusal" if refused else "text": scene.text}
        deltas = [(f"response.{kind}.delta", {"content_index": 0, "delta": piece}) for piece in pieces(scene.text)]
        deltas.append((f"response.{kind}.done", {"content_index": 0, **content}))
        item(start, start | {"status": "completed", "content": [content]}, deltas)
    for number, call in enumerate(scene.calls):
        start = {"type": "function_call", "id": f"fc_{number}", "call_id": call.id, "name": call.name, "arguments": ""}
        deltas = [("response.function_call_arguments.delta", {"delta": piece}) for piece in pieces(call.arguments)]
        deltas.append(("response.function_call_arguments.done", {"arguments": call.arguments}))
        item(start, start | {"arguments": call.arguments}, deltas)
    usage = {
        "input_tokens": scene.input_tokens,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": scene.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": scene.input_tokens + scene.output_tokens,
    }
    last = head | {"output": output, "usage": usage, "error": None}
    if scene.reason is FinishReason.LENGTH:
        cut = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
        give("response.incomplete", response=last | cut)
    else:
        give("response.completed", response=last | {"status": "completed", "incomplete_details": None})
    return [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events]


def gemini(scene: Scene, model: str = "gemini-fake") -> list[bytes]:
    parts: list[dict[str, Any]] = [{"text": piece, "thought": True} for piece in pieces(scene.thinking)]
    parts += [{"text": piece} for piece in pieces(scene.text)]
    for number, call in enumerate(scene.calls):
        function = {"id": call.id, "name": call.name, "args": json.loads(call.arguments)}
        # Only the first call of a message is signed.
        parts.append({"functionCall": function} | ({} if number else {"thoughtSignature": SIGNATURE}))
    reasons = {
        FinishReason.STOP: "STOP",
        FinishReason.TOOL_CALLS: "STOP",
        FinishReason.LENGTH: "MAX_TOKENS",
        FinishReason.REFUSAL: "SAFETY",
    }
    head: dict[str, Any] = {"modelVersion": model, "responseId": "gemini-fake-1"}
    chunks = [head | {"candidates": [{"content": {"parts": [part], "role": "model"}, "index": 0}]} for part in parts]
    last = {"content": {"parts": [{"text": ""}], "role": "model"}, "finishReason": reasons[scene.reason], "index": 0}
    usage = {
        "promptTokenCount": scene.input_tokens,
        "candidatesTokenCount": scene.output_tokens,
        "totalTokenCount": scene.input_tokens + scene.output_tokens,
    }
    chunks.append(head | {"candidates": [last], "usageMetadata": usage})
    return [f"data: {json.dumps(chunk)}\r\n\r\n".encode() for chunk in chunks]


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
