"""The path guard: one path at a time."""

import pytest

from tests.unit.policy.builders import agent, person, project
from toolcrib.core.errors import PermissionDenied, ProtectedPath, ReadOnlyMount
from toolcrib.core.paths import Mount, WorkspacePath
from toolcrib.policy.authorization import PathGuard

PKG_FILE = WorkspacePath(Mount.PKG, "/guide.md")
LOG_FILE = WorkspacePath(Mount.STATE, "/logs/execution.jsonl")


def test_pkg_is_readable_and_never_writable() -> None:
    for caller in (person(), agent()):
        PathGuard(caller, "write").check_read(PKG_FILE)
        with pytest.raises(ReadOnlyMount, match="@pkg is read-only"):
            PathGuard(caller, "write").check_write(PKG_FILE)


@pytest.mark.parametrize("path", [LOG_FILE, LOG_FILE.parent])
def test_no_tool_writes_the_logs_and_every_tool_reads_them(path: WorkspacePath) -> None:
    for caller in (person(), agent()):
        PathGuard(caller, "write").check_read(path)
        with pytest.raises(ReadOnlyMount, match="only Toolcrib writes @state/logs"):
            PathGuard(caller, "write").check_write(path)


def test_the_rest_of_state_is_writable() -> None:
    PathGuard(agent(), "write").check_write(WorkspacePath(Mount.STATE, "/logs.md"))


def test_protected_names_are_denied_to_an_agent_and_not_to_a_person() -> None:
    PathGuard(person(), "read").check_read(project("/.env"))
    PathGuard(person(), "write").check_write(project("/.git/hooks/pre-commit"))
    with pytest.raises(ProtectedPath, match=r"cannot read @project/\.env: `\.env` is protected.*`unprotected_paths`"):
        PathGuard(agent(), "read").check_read(project("/.env"))
    with pytest.raises(ProtectedPath, match="cannot write"):
        PathGuard(agent(), "write").check_write(project("/.vscode/tasks.json"))


def test_files_that_become_code_need_approval_and_secrets_are_always_denied() -> None:
    closed: list[WorkspacePath] = []
    guard = PathGuard(agent(), "write", ask=closed.append)
    for path in (project("/a"), project("/.vscode/tasks.json")):
        guard.check_write(path)
    with pytest.raises(ProtectedPath):
        guard.check_write(project("/.vscode/.env"))
    assert closed == [project("/.vscode/tasks.json")]


def test_an_owner_lifts_a_pattern_for_one_agent() -> None:
    PathGuard(agent(unprotected_paths=[".env"]), "read").check_read(project("/.env"))
    with pytest.raises(ProtectedPath):
        PathGuard(agent(unprotected_paths=[".env"]), "read").check_read(project("/.env.local"))


def test_an_agent_stays_on_the_paths_of_the_tool_it_uses() -> None:
    caller = agent(tool_permissions={"write": {"allowed": True, "paths": ["src/**"]}, "read": {"allowed": True}})
    PathGuard(caller, "write").check_write(project("/src/a.py"))
    PathGuard(caller, "read").check_read(project("/docs/a.md"))
    with pytest.raises(
        PermissionDenied, match=r"cannot write @project/docs/a\.md with `write`: its paths are src/\*\*"
    ):
        PathGuard(caller, "write").check_write(project("/docs/a.md"))
