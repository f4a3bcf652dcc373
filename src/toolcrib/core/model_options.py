"""Choices about how a model is asked, independent of the provider."""

from enum import StrEnum


class Effort(StrEnum):
    """How much a model thinks before it answers. No model accepts all values; each wire says which it does."""

    NONE = "none"
    MINIMAL = "minimal"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    XHIGH = "xhigh"
    MAX = "max"


class Wire(StrEnum):
    """The API that is used at a server with two of them."""

    CHAT_COMPLETIONS = "chat_completions"
    RESPONSES = "responses"
