"""Toolcrib: a versioned workspace and guarded tools for language models."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolcrib.client import Approval as Approval
    from toolcrib.client import Question as Question
    from toolcrib.domain.effects import Category as Category
    from toolcrib.domain.effects import Danger as Danger
    from toolcrib.domain.effects import Effects as Effects
    from toolcrib.domain.errors import ToolcribError as ToolcribError
    from toolcrib.domain.errors import ToolFailed as ToolFailed
    from toolcrib.library.answering import Allow as Allow
    from toolcrib.library.answering import Deny as Deny
    from toolcrib.library.async_crib import AsyncToolcrib as AsyncToolcrib
    from toolcrib.library.crib import Toolcrib as Toolcrib
    from toolcrib.library.events import Called as Called
    from toolcrib.library.events import Calling as Calling
    from toolcrib.library.events import Event as Event
    from toolcrib.library.events import Output as Output
    from toolcrib.library.events import Result as Result
    from toolcrib.library.events import Text as Text
    from toolcrib.library.events import Unfinished as Unfinished
    from toolcrib.tools.context import ToolContext as ToolContext
    from toolcrib.tools.define import tool as tool
    from toolcrib.workspace.paths import AbsolutePath as AbsolutePath

__version__ = "0.1.0"

# What programs need that use Toolcrib or add a tool. Loaded when first asked for: `import toolcrib` alone stays light.
_OFFERED = {
    **dict.fromkeys(("Approval", "Question"), "toolcrib.client"),
    **dict.fromkeys(("Category", "Danger", "Effects"), "toolcrib.domain.effects"),
    **dict.fromkeys(("ToolFailed", "ToolcribError"), "toolcrib.domain.errors"),
    **dict.fromkeys(("Allow", "Deny"), "toolcrib.library.answering"),
    **dict.fromkeys(
        ("Called", "Calling", "Event", "Output", "Result", "Text", "Unfinished"), "toolcrib.library.events"
    ),
    "AbsolutePath": "toolcrib.workspace.paths",
    "AsyncToolcrib": "toolcrib.library.async_crib",
    "ToolContext": "toolcrib.tools.context",
    "Toolcrib": "toolcrib.library.crib",
    "tool": "toolcrib.tools.define",
}


def __getattr__(name: str) -> Any:
    if name not in _OFFERED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_OFFERED[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_OFFERED})
