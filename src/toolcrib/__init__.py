"""Toolcrib: a versioned workspace and guarded tools for language models."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolcrib.tools.context import ToolContext as ToolContext
    from toolcrib.tools.define import tool as tool

__version__ = "0.1.0"

# What whoever adds a tool needs. Loaded when first asked for, so that `import toolcrib` alone stays light.
_OFFERED = {"ToolContext": "toolcrib.tools.context", "tool": "toolcrib.tools.define"}


def __getattr__(name: str) -> Any:
    if name not in _OFFERED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_OFFERED[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_OFFERED})
