"""Any server that imitates OpenAI's chat completions at an address of the user's: vLLM, llama.cpp, OpenRouter …"""

from collections.abc import Mapping
from typing import Any, ClassVar

from toolcrib.providers.openai_chat import OpenAIChat
from toolcrib.providers.provider import ModelInfo

# Where those who tell the size of the context put it.
_WINDOW_FIELDS = ("context_length", "max_model_len", "context_window", "max_context_length")


class OpenAICompatible(OpenAIChat):
    name: ClassVar[str] = "openai-compatible"
    address: ClassVar[str] = ""

    def model_info(self, entry: Mapping[str, Any]) -> ModelInfo | None:
        windows = [entry.get(field) for field in _WINDOW_FIELDS]
        meta = entry.get("meta")
        if isinstance(meta, dict):
            # llama.cpp: what it was started with, else what the model was trained for.
            windows += [meta.get("n_ctx"), meta.get("n_ctx_train")]
        window = next((found for found in windows if isinstance(found, int) and found > 0), None)
        told = entry.get("supported_parameters")
        name = entry.get("name")
        return ModelInfo(
            entry["id"],
            name if isinstance(name, str) and name else entry["id"],
            window,
            # Most do not tell. If it was wrong, the server says so and the error tells it apart.
            supports_tools="tools" in told if isinstance(told, list) else True,
        )
