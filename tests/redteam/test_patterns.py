"""Attack 2: patterns that take a backtracking matcher years. They froze the server forever."""

import time
from typing import Any

import pytest

from tests.integration.conftest import WorkspaceFixture
from tests.integration.gate.builders import trusted
from tests.integration.tools.shell.conftest import workspace
from toolcrib.core.agents import ToolPermission
from toolcrib.core.errors import BadArguments, PermissionDenied, ToolFailed
from toolcrib.core.paths import Mount, WorkspacePath
from toolcrib.core.paused_calls import GrantRule
from toolcrib.core.tool_calls import Effects
from toolcrib.policy.agent_definition import rules_from_data
from toolcrib.policy.grants import check_rule, grant_covers
from toolcrib.policy.permissions import path_allowed
from toolcrib.tools.files.write import write

__all__ = ["workspace"]


EXPLODES = "*a" * 16 + "*b"
LONG = "/" + "a" * 240
# The CPU time of a complete call: far above what it needs, far below what one match took.
SECONDS = 5.0


class Stopwatch:
    """Measures the CPU time of this process, whatever else the machine does."""

    def __enter__(self) -> "Stopwatch":
        self.began = time.process_time()
        return self

    def __exit__(self, *_: Any) -> None:
        assert time.process_time() - self.began < SECONDS


@pytest.mark.parametrize("glob", [EXPLODES, f"!{EXPLODES}", f"@project/{EXPLODES}", "/*a*a*a*a*a*a*a*a*a*a*a*a*/b"])
async def test_exponential_rule_does_not_block_the_gate(workspace: WorkspaceFixture, glob: str) -> None:
    agent = await trusted(workspace, tool_permissions={"read": {"allowed": True, "paths": [glob, "z"]}})

    with Stopwatch():
        outcome = await workspace.call("read", agent, path=LONG)

    assert isinstance(outcome.error, PermissionDenied)


def test_exponential_grant_is_evaluated_at_once() -> None:
    effects = Effects(
        writes=(WorkspacePath(Mount.PROJECT, LONG), WorkspacePath(Mount.PROJECT, "/" + "/".join(["a" * 60] * 60)))
    )

    with Stopwatch():
        for glob in (EXPLODES, f"@project/{EXPLODES}", "@project/" + "*a*a*/" * 5):
            assert not grant_covers(GrantRule(("write",), paths=(glob,)), "write", effects)


IGNORE = ["*a*a*a/*a*a*a/*a*a*a/zzz", EXPLODES, "**/a/**/a/**/a/**/a/**/zzz", "!*a*a*a*a*a*a*a*a*a*a*b"]


@pytest.mark.parametrize("line", IGNORE)
async def test_exponential_ignore_rules_block_no_command(workspace: WorkspaceFixture, line: str) -> None:
    (workspace.project / ".gitignore").write_text(f"{line}\nkept-out\n")
    deep = "/".join(["a" * 120] * 4)

    with Stopwatch():
        outcome = await workspace.call(
            "bash", command=f"mkdir -p {deep} {'a/' * 60}; echo x > {deep}/x; echo x > {'a' * 240}; echo x > kept-out"
        )

    assert outcome.succeeded, outcome.error
    assert [one["path"] for one in outcome.result["metadata"]["untracked"]] == ["kept-out"]


@pytest.mark.parametrize("line", IGNORE)
async def test_approved_command_with_exponential_rules_is_executed(workspace: WorkspaceFixture, line: str) -> None:
    """It was a poison pill: it froze the server again after every restart."""
    command = f"echo '{line}' > .gitignore; mkdir -p {'a' * 200}/{'a' * 200}/{'a' * 200}; echo x > {'a' * 200}/x"

    with Stopwatch():
        outcome = await workspace.call("bash", command=command)

    assert outcome.succeeded, outcome.error


async def test_too_large_rules_fail_the_call_with_a_reason(workspace: WorkspaceFixture) -> None:
    (workspace.project / ".gitignore").write_text("*a" * 450 + "\n")

    outcome = await workspace.call("bash", command="echo x > made")

    assert isinstance(outcome.error, ToolFailed)
    assert "/.gitignore cannot be evaluated" in outcome.error.message
    assert not (workspace.project / "made").exists()


@pytest.mark.parametrize("tool", ["glob", "find", "grep"])
async def test_searches_by_name_are_fast(workspace: WorkspaceFixture, tool: str) -> None:
    for number in range(50):
        (workspace.project / f"{'a' * 240}{number}").write_text("bait\n")
    arguments: dict[str, dict[str, Any]] = {
        "glob": {"patterns": [EXPLODES, "**/*a*a*a*a*a*a*a*a*a*a*b", "{a,aa}" * 5]},
        "find": {"name": EXPLODES},
        "grep": {"pattern": "bait", "path_pattern": "%a" * 60 + "%b_"},
    }

    with Stopwatch():
        outcome = await workspace.call(tool, **arguments[tool])

    assert outcome.succeeded, outcome.error
    assert outcome.result["matches"] == []


@pytest.mark.parametrize("tool", ["glob", "find", "grep"])
async def test_too_large_patterns_are_invalid_arguments(workspace: WorkspaceFixture, tool: str) -> None:
    arguments: dict[str, dict[str, Any]] = {
        "glob": {"pattern": "*a" * 490},
        "find": {"name": "*a" * 490},
        "grep": {"pattern": "bait", "path_pattern": "_%" * 490},
    }

    with Stopwatch():
        outcome = await workspace.call(tool, **arguments[tool])

    assert isinstance(outcome.error, BadArguments), outcome


@pytest.mark.parametrize(
    "paths", [["*a" * 450], ["a" * 1_001], [f"p{number}/**" for number in range(201)], ["**/a/" * 20] * 40]
)
def test_too_large_rules_and_grants_are_rejected_when_they_are_saved(paths: list[str]) -> None:
    with pytest.raises(BadArguments) as wrong:
        rules_from_data({"tool_permissions": {"read": {"allowed": True, "paths": paths}}})
    assert "tool_permissions.read.paths" in wrong.value.fields
    rule = GrantRule(("write",), paths=tuple(paths))
    with pytest.raises(BadArguments) as wrong:
        check_rule(rule, write, Effects(writes=(WorkspacePath(Mount.PROJECT, "/x"),)))
    assert "rule.paths" in wrong.value.fields


def test_too_large_rules_from_an_earlier_version_allow_nothing() -> None:
    """Stored before there were limits: they allow nothing rather than everything."""
    kept = ToolPermission(allowed=True, paths=("**", "!" + "*a" * 450))

    assert not path_allowed(kept, WorkspacePath(Mount.PROJECT, "/x"))
    assert path_allowed(ToolPermission(allowed=True, paths=("**",)), WorkspacePath(Mount.PROJECT, "/x"))
