"""Calls in a dialect: their results, whether they succeed or not, and their journal lines."""

import json
from pathlib import Path
from typing import Any

from tests.integration.conftest import WorkspaceFixture
from toolcrib.core.callers import Caller

MOUNTS = ("fs.list", "fs.read", "fs.search", "fs.write", "fs.apply_patch")
PROJECT = ("read_file", "list_directory")
STUDIO = ("file_read", "file_write")


async def tool_result(
    workspace: WorkspaceFixture, tool: str, caller: Caller | None = None, /, **arguments: Any
) -> dict[str, Any]:
    """Return the dialect's result of a call, including failures."""
    outcome = await workspace.call(tool, caller or workspace.caller, **arguments)
    assert isinstance(outcome.result, dict), outcome
    return outcome.result


async def speaker(workspace: WorkspaceFixture, **rules: Any) -> Caller:
    """An agent that may use every tool of all three dialects without approval."""
    given: dict[str, Any] = {
        "trust": "autonomous",
        "toolsets": ["mounts", "project", "studio"],
        "tool_permissions": {name: {"allowed": True} for name in (*MOUNTS, *PROJECT, *STUDIO)},
    }
    return await workspace.agent(**{**given, **rules})


def state_of(workspace: WorkspaceFixture, caller: Caller) -> Path:
    """Return the path of a caller's @state on disk."""
    return workspace.mount(f"state/{caller.state_scope}")


def journal_of(workspace: WorkspaceFixture, caller: Caller, name: str = "execution.jsonl") -> list[dict[str, Any]]:
    """Return the lines of a caller's journal."""
    path = state_of(workspace, caller) / "logs" / name
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
