"""Toolcrib: a versioned workspace and guarded tools for language models."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolcrib.client import ApprovalOut as ApprovalOut
    from toolcrib.client import QuestionPauseOut as QuestionPauseOut
    from toolcrib.core.errors import BadArguments as BadArguments
    from toolcrib.core.errors import ToolcribError as ToolcribError
    from toolcrib.core.errors import ToolFailed as ToolFailed
    from toolcrib.core.paths import AbsolutePath as AbsolutePath
    from toolcrib.core.paths import MountPath as MountPath
    from toolcrib.core.paused_calls import AnswerButton as AnswerButton
    from toolcrib.core.paused_calls import Question as Question
    from toolcrib.core.tool_calls import Danger as Danger
    from toolcrib.core.tool_calls import Effects as Effects
    from toolcrib.core.tool_calls import ToolCategory as ToolCategory
    from toolcrib.sdk.approval_callbacks import Approve as Approve
    from toolcrib.sdk.approval_callbacks import Reject as Reject
    from toolcrib.sdk.async_toolcrib import AsyncToolcrib as AsyncToolcrib
    from toolcrib.sdk.run_events import Event as Event
    from toolcrib.sdk.run_events import RunResult as RunResult
    from toolcrib.sdk.run_events import RunUnfinished as RunUnfinished
    from toolcrib.sdk.run_events import TextChunk as TextChunk
    from toolcrib.sdk.run_events import ToolCallFinished as ToolCallFinished
    from toolcrib.sdk.run_events import ToolCallStarted as ToolCallStarted
    from toolcrib.sdk.run_events import ToolOutput as ToolOutput
    from toolcrib.sdk.toolcrib import Toolcrib as Toolcrib
    from toolcrib.tools.context import ToolContext as ToolContext
    from toolcrib.tools.tool import tool as tool
    from toolcrib.tools.tool_files import FileEntry as FileEntry
    from toolcrib.tools.tool_files import ToolFiles as ToolFiles

__version__ = "0.1.0"

# The public API for programs that use Toolcrib or add tools. Imported on first use, so that `import toolcrib` is fast.
_OFFERED = {
    **dict.fromkeys(("ApprovalOut", "QuestionPauseOut"), "toolcrib.client"),
    **dict.fromkeys(("ToolCategory", "Danger", "Effects"), "toolcrib.core.tool_calls"),
    **dict.fromkeys(("BadArguments", "ToolFailed", "ToolcribError"), "toolcrib.core.errors"),
    **dict.fromkeys(("Approve", "Reject"), "toolcrib.sdk.approval_callbacks"),
    **dict.fromkeys(
        ("ToolCallFinished", "ToolCallStarted", "Event", "ToolOutput", "RunResult", "TextChunk", "RunUnfinished"),
        "toolcrib.sdk.run_events",
    ),
    **dict.fromkeys(("AbsolutePath", "MountPath"), "toolcrib.core.paths"),
    **dict.fromkeys(("AnswerButton", "Question"), "toolcrib.core.paused_calls"),
    "AsyncToolcrib": "toolcrib.sdk.async_toolcrib",
    **dict.fromkeys(("FileEntry", "ToolFiles"), "toolcrib.tools.tool_files"),
    "ToolContext": "toolcrib.tools.context",
    "Toolcrib": "toolcrib.sdk.toolcrib",
    "tool": "toolcrib.tools.tool",
}


def __getattr__(name: str) -> Any:
    if name not in _OFFERED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_OFFERED[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_OFFERED})
