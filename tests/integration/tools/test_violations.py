"""How each toolset reports a violation."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import WorkspaceFixture
from tests.integration.tools.builders import MOUNTS, PROJECT, STUDIO, speaker
from toolcrib.core.errors import SandboxViolation
from toolcrib.core.tool_calls import Outcome, OutcomeState


def raised(outcome: Outcome) -> bool:
    """Return whether it is reported as the error that HTTP maps to 400 and VALIDATION_ERROR."""
    return outcome.result is None and outcome.error is not None and outcome.error.code == "VALIDATION_ERROR"


def in_the_union(outcome: Outcome) -> bool:
    return outcome.result["ok"] is False and outcome.result["error"]["code"] == "E_SANDBOX_VIOLATION"


def says_outside(outcome: Outcome) -> bool:
    return outcome.result["is_error"] is True and "outside" in outcome.result["output"]


# The limits: a path out of the mount, a link out of it, a protected name, and the read-only mount.
CASES: dict[str, tuple[str, list[dict[str, Any]], Callable[[Outcome], bool]]] = {
    "workspace reads": ("read", [{"path": p} for p in ("/../x", "/out/x", "/.env")], raised),
    "workspace writes": ("write", [{"path": p, "content": ""} for p in ("/../x", "/out/x", "/.env")], raised),
    "studio reads": ("file_read", [{"path": p} for p in ("../x", "out/x", ".env", "/etc/passwd", "@pkg/x")], raised),
    "studio writes": (
        "file_write",
        [{"path": p, "content": ""} for p in ("../x", "out/x", "out", ".env", "/etc/passwd", "@pkg/x")],
        raised,
    ),
    "mounts lists": ("fs.list", [{"path": p} for p in ("@project/../x", "@project/out", "@nowhere")], in_the_union),
    "mounts reads": ("fs.read", [{"path": f"@project/{p}"} for p in ("../x", "out/x", ".env")], in_the_union),
    "mounts searches": (
        "fs.search",
        [{"path": f"@project/{p}", "pattern": "x"} for p in ("../x", "out", ".env")],
        in_the_union,
    ),
    "mounts writes": (
        "fs.write",
        [
            {"path": p, "content": ""}
            for p in ("@project/../x", "@project/out", "@project/.env", "@pkg/x", "@state/logs/execution.jsonl")
        ],
        in_the_union,
    ),
    "mounts patches": (
        "fs.apply_patch",
        [
            {"path": p, "patch": {"operation": "updateFrontmatter", "update": {}}}
            for p in ("@state/../x", "@pkg/x", "@state/.env", "@state/logs/x.md")
        ],
        in_the_union,
    ),
    "project reads": (
        "read_file",
        [{"path": p} for p in ("../x", "out/x", "out", ".env", "/etc/passwd")],
        says_outside,
    ),
    "project lists": ("list_directory", [{"path": p} for p in ("../x", "out", "/etc")], says_outside),
}


@pytest.mark.parametrize("case", CASES)
async def test_violation_has_the_form_of_its_toolset(workspace: WorkspaceFixture, case: str, tmp_path: Path) -> None:
    tool, calls, has_its_form = CASES[case]
    (workspace.project / "out").symlink_to(tmp_path)
    everything = (*MOUNTS, *PROJECT, *STUDIO, "read", "write")
    agent = await speaker(
        workspace,
        toolsets=["workspace", "mounts", "project", "studio"],
        tool_permissions={name: {"allowed": True} for name in everything},
    )

    for arguments in calls:
        outcome = await workspace.call(tool, agent, **arguments)
        assert isinstance(outcome.error, SandboxViolation), arguments
        assert outcome.state is OutcomeState.DENIED
        assert has_its_form(outcome), (arguments, outcome)
