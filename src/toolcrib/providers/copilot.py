"""GitHub Copilot, by its chat completions. The credentials are a token of GitHub's that may use Copilot."""

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, ClassVar

from toolcrib.domain.messages import UserMessage
from toolcrib.providers.openai_chat import OpenAIChat
from toolcrib.providers.provider import ModelInfo, ModelRequest

_VERSION = version("toolcrib")


class Copilot(OpenAIChat):
    name: ClassVar[str] = "copilot"
    address: ClassVar[str] = "https://api.githubcopilot.com"

    def headers(self, request: ModelRequest) -> Mapping[str, str]:
        last = request.messages[-1] if request.messages else None
        return {
            "User-Agent": f"toolcrib/{_VERSION}",
            "Openai-Intent": "conversation-edits",
            # What a person asks is counted against their plan; what the loop asks by itself is not.
            "X-Initiator": "user" if isinstance(last, UserMessage) else "agent",
        }

    def model_info(self, entry: Mapping[str, Any]) -> ModelInfo | None:
        capabilities = _mapping(entry.get("capabilities"))
        if capabilities.get("type", "chat") != "chat":
            return None
        limits, supports = _mapping(capabilities.get("limits")), _mapping(capabilities.get("supports"))
        window, output = limits.get("max_context_window_tokens"), limits.get("max_output_tokens")
        name = entry.get("name")
        return ModelInfo(
            entry["id"],
            name if isinstance(name, str) and name else entry["id"],
            window if isinstance(window, int) else None,
            supports_tools=bool(supports.get("tool_calls", not supports)),
            max_output_tokens=output if isinstance(output, int) else None,
        )


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
