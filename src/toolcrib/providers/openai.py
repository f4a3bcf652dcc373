"""OpenAI itself, by its chat completions."""

from collections.abc import Mapping
from typing import Any, ClassVar

from toolcrib.providers.openai_chat import OpenAIChat
from toolcrib.providers.provider import ModelInfo

# OpenAI lists names only. What they mean, by the longest beginning that fits; None: not for chat, or not this way.
_FAMILIES: Mapping[str, tuple[int, bool] | None] = {
    "gpt-3.5": (16_385, True),
    "gpt-3.5-turbo-instruct": None,
    "gpt-4": (8_192, True),
    "gpt-4-turbo": (128_000, True),
    "gpt-4.1": (1_047_576, True),
    "gpt-4o": (128_000, True),
    "gpt-4o-audio": None,
    "gpt-4o-realtime": None,
    "gpt-4o-transcribe": None,
    "gpt-4o-mini-audio": None,
    "gpt-4o-mini-realtime": None,
    "gpt-4o-mini-transcribe": None,
    "gpt-4o-mini-tts": None,
    "gpt-5": (400_000, True),
    "gpt-5-chat": (128_000, False),
    "gpt-audio": None,
    "gpt-image": None,
    "gpt-realtime": None,
    "chatgpt-4o": (128_000, False),
    "o1": (200_000, True),
    "o1-mini": (128_000, False),
    "o1-preview": (128_000, False),
    "o1-pro": None,
    "o3": (200_000, True),
    "o3-pro": None,
    "o4": (200_000, True),
}


class OpenAI(OpenAIChat):
    name: ClassVar[str] = "openai"
    address: ClassVar[str] = "https://api.openai.com/v1"
    # `max_tokens` is refused by the models that reason.
    max_tokens_field: ClassVar[str] = "max_completion_tokens"

    def model_info(self, entry: Mapping[str, Any]) -> ModelInfo | None:
        model = str(entry["id"])
        family = max((start for start in _FAMILIES if base(model).startswith(start)), key=len, default=None)
        if family is not None:
            known = _FAMILIES[family]
            return ModelInfo(model, model, *known) if known else None
        if base(model).startswith("gpt-") or (base(model)[:1] == "o" and base(model)[1:2].isdigit()):
            return ModelInfo(model, model, None, supports_tools=True)
        return None


def base(model: str) -> str:
    """The model that a fine-tuned one was made from: `ft:gpt-4o-mini:who::id`."""
    return model.split(":")[1] if model.startswith("ft:") and ":" in model[3:] else model
