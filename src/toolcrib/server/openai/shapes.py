"""Answers in the form that OpenAI's clients read. Knows no agent and no run."""

import time
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic_core import to_json

from toolcrib.server.sse import EventStream

DONE: Final[dict[str, Any]] = {}


@dataclass(frozen=True, slots=True)
class Usage:
    input_tokens: int
    output_tokens: int

    @property
    def shape(self) -> dict[str, int]:
        return {
            "prompt_tokens": self.input_tokens,
            "completion_tokens": self.output_tokens,
            "total_tokens": self.input_tokens + self.output_tokens,
        }


@dataclass(frozen=True, slots=True)
class Completion:
    """One answer: whole, or in chunks."""

    id: str
    model: str
    # Whether every chunk says that its usage is told at the end.
    with_usage: bool = False
    created: int = field(default_factory=lambda: int(time.time()))

    def whole(self, text: str, *, finish: str, usage: Usage) -> dict[str, Any]:
        message = {"role": "assistant", "content": text, "refusal": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
        return self._shape("chat.completion", [choice]) | {"usage": usage.shape}

    def chunk(self, *, finish: str | None = None, **delta: str) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return self._shape("chat.completion.chunk", [choice]) | ({"usage": None} if self.with_usage else {})

    def last(self, usage: Usage) -> dict[str, Any]:
        return self._shape("chat.completion.chunk", []) | {"usage": usage.shape}

    def _shape(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model, "choices": choices}


class ChunkStream(EventStream):
    """Chunks as server-sent events; ``DONE`` is the last."""

    opening = b""

    def encode(self, message: dict[str, Any]) -> bytes:
        return b"data: [DONE]\n\n" if message is DONE else b"data: %s\n\n" % to_json(message)
