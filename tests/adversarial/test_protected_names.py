"""Cases 12, 17 to 24, 31, 32, 40 and 41 at the gate, as an agent: protected names in any spelling, by any tool."""

import asyncio
import os
from typing import Any

import pytest

from tests.integration.conftest import WorkspaceFixture, workspace
from tests.integration.gate.builders import audit_records_of, get, put, trusted, with_tools
from toolcrib.core.callers import Caller
from toolcrib.core.errors import (
    CallDenied,
    PathOutsideMount,
    ProtectedPath,
    ReadOnlyMount,
    SandboxViolation,
    SymlinkNotFollowed,
)
from toolcrib.core.tool_calls import OutcomeState

__all__ = ["workspace"]


SECRET = "KEY=hunter2\n"

# Names that some file system or reader treats as a protected one, case by case. None of them exists.
SPELLINGS = {
    "17 upper case": "/.ENV",
    "17 mixed case": "/.Git/Config",
    "18 fullwidth dot": "/\uff0eenv",
    "18 one dot leader": "/\u2024env",
    "18 fullwidth letters": "/.\uff25\uff2e\uff36",
    "19 zero width space": "/.e\u200bnv",
    "19 zero width joiner": "/.git/con\u200dfig",
    "19 byte order mark": "/.env\ufeff",
    "19 soft hyphen": "/.e\u00adnv",
    "20 trailing dot": "/.env.",
    "20 trailing dots and blanks": "/d/.env . .",
    "20 trailing dot of a folder": "/.git./config",
    "21 dot segment": "/.git/./config",
    "21 dot dot segment": "/.git/x/../config",
    "21 double slash": "/.git//config",
    "22 nested repository": "/vendor/lib/.git/config",
    "22 a submodule's": "/.git/modules/lib/config",
    "plain": "/.env",
    "credentials": "/conf/my-credentials.yaml",
    "a secret": "/SECRETS/x.txt",
    "a key": "/deploy.pem",
    "a program's": "/.mcp.json",
}

# The same for names of files that become code, which agents read freely and write only with approval.
CODE_SPELLINGS = {
    "17 upper case": "/.VSCODE/tasks.json",
    "18 fullwidth dot": "/\uff0evscode/tasks.json",
    "19 zero width space": "/.vs\u200bcode/tasks.json",
    "20 trailing dot of a folder": "/.git./hooks/pre-commit",
    "21 dot dot segment": "/.git/x/../hooks/pre-commit",
    "22 hooks of a nested one": "/vendor/lib/.git/hooks/pre-commit",
    "a bare repository": "/bare/HEAD",
}


@pytest.fixture
async def agent(workspace: WorkspaceFixture) -> Caller:
    return await trusted(workspace)


def calls_on(path: str) -> dict[str, dict[str, Any]]:
    """A call of every tool that could read or write a path, or move something onto or away from it."""
    return {
        "read": {"path": path},
        "file_info": {"path": path},
        "write": {"path": path, "content": "x", "overwrite": True},
        "edit": {"path": path, "insert_line": 0, "insert_content": "x"},
        "touch": {"path": path},
        "mkdir": {"path": path},
        "rm": {"path": path},
        "mv": {"source": path, "destination": "/free"},
    }


def plan_calls_on(path: str) -> dict[str, dict[str, Any]]:
    """The same for plans, whose names end with `.plan`."""
    return {
        "plan_read": {"path": path},
        "plan_write": {"path": path, "title": "x", "content": "x"},
        "plan_edit": {"path": path, "insert_line": 0, "insert_content": "x"},
    }


async def refused(workspace: WorkspaceFixture, agent: Caller, tool: str, **arguments: Any) -> None:
    outcome = await workspace.call(tool, agent, **arguments)
    assert isinstance(outcome.error, SandboxViolation), (tool, arguments, outcome)
    assert type(outcome.error) is ProtectedPath
    assert (outcome.state, outcome.error.code) == (OutcomeState.DENIED, "VALIDATION_ERROR")
    assert "hunter2" not in outcome.error.message
    [record] = await audit_records_of(workspace, outcome.call_id)
    assert (record.outcome, record.error_code) == ("denied", "VALIDATION_ERROR")


async def waits(workspace: WorkspaceFixture, agent: Caller, tool: str, **arguments: Any) -> None:
    outcome = await workspace.call(tool, agent, **arguments)
    assert outcome.is_waiting, (tool, arguments, outcome)
    approval = await workspace.engine.paused_calls.get(workspace.tenant, outcome.metadata["pause_id"])
    assert approval.approval.rule == "protected-name"
    assert approval.approval.effects["protected"], tool


def path_state(workspace: WorkspaceFixture) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(workspace.project)): path.read_bytes() if path.is_file() else None
        for path in sorted(workspace.project.rglob("*"))
    }


@pytest.mark.parametrize("path", SPELLINGS.values(), ids=SPELLINGS)
async def test_cases_17_to_22_no_spelling_is_read_or_written_even_if_nothing_is_there(
    workspace: WorkspaceFixture, agent: Caller, path: str
) -> None:
    await workspace.result("write", path="/mine.txt", content="mine")
    before = path_state(workspace)

    for tool, arguments in calls_on(path).items():
        await refused(workspace, agent, tool, **arguments)
    await refused(workspace, agent, "mv", source="/mine.txt", destination=path)

    assert path_state(workspace) == before


@pytest.mark.parametrize("path", CODE_SPELLINGS.values(), ids=CODE_SPELLINGS)
async def test_no_spelling_of_a_file_that_becomes_code_is_written_without_approval(
    workspace: WorkspaceFixture, agent: Caller, path: str
) -> None:
    await workspace.result("write", path="/mine.txt", content="mine")
    before = path_state(workspace)

    for tool in ("write", "touch", "mkdir"):
        await waits(workspace, agent, tool, **calls_on(path)[tool])
    assert path_state(workspace) == before

    await workspace.result("write", path=f"{path.rpartition('/')[0]}/beside", content="theirs")
    await waits(workspace, agent, "mv", source="/mine.txt", destination=path)
    await workspace.result("write", path=path, content="mine")
    before = path_state(workspace)
    for tool in ("write", "edit", "touch", "rm", "mv"):
        await waits(workspace, agent, tool, **calls_on(path)[tool])
    assert (await workspace.call("read", agent, path=path)).result["content"] == "mine"
    assert path_state(workspace) == before


@pytest.mark.parametrize("path", ["/secrets/a.plan", "/.env.plan", "/.ssh/a-b-c.plan", "/CREDENTIALS/b.plan"])
async def test_plan_with_a_protected_name_is_hidden_from_agents(
    workspace: WorkspaceFixture, agent: Caller, path: str
) -> None:
    await workspace.result("plan_write", path=path, title="x", content=SECRET)
    before = path_state(workspace)

    for tool, arguments in plan_calls_on(path).items():
        await refused(workspace, agent, tool, **arguments)
    outcome = await workspace.call("plan_list", agent)

    assert outcome.result == {"plans": [], "total": 0}
    assert path_state(workspace) == before


@pytest.mark.parametrize("path", ["/.env", "/.git/config", "/a/credentials.json", "/.ssh/id_rsa"])
async def test_tracked_and_untracked_files_are_denied_alike(
    workspace: WorkspaceFixture, agent: Caller, path: str
) -> None:
    await workspace.result("write", path=path, content=SECRET)
    on_disk = workspace.project / "disk" / path.lstrip("/")
    on_disk.parent.mkdir(parents=True)
    on_disk.write_text(SECRET)

    for there in (path, f"/disk{path}"):
        for tool, arguments in calls_on(there).items():
            await refused(workspace, agent, tool, **arguments)

    assert on_disk.read_text() == SECRET
    assert (await workspace.result("read", path=path))["content"] == SECRET


@pytest.mark.parametrize("packages", ["/vendor", "/node_modules", "/lib/site-packages"])
async def test_secret_does_not_become_readable_among_installed_packages(
    workspace: WorkspaceFixture, agent: Caller, packages: str
) -> None:
    """Installed packages are not protected by words in their names; secrets of the project stay so."""
    await workspace.result("write", path=f"{packages}/credentials/index.js", content="exports = 1")
    (workspace.project / "conf").mkdir()
    (workspace.project / "conf" / "client_secret.json").write_text(SECRET)
    await workspace.result("write", path="/kept/credentials.json", content=SECRET)
    before = path_state(workspace)

    read = await workspace.call("read", agent, path=f"{packages}/credentials/index.js")
    assert read.result["content"] == "exports = 1"
    for source in ("/conf/client_secret.json", "/conf", "/kept/credentials.json", "/kept"):
        await refused(workspace, agent, "mv", source=source, destination=f"{packages}/moved")
    await refused(workspace, agent, "read", path=f"/secrets{packages}/a.txt")
    assert path_state(workspace) == before


async def test_case_23_git_as_a_file_is_not_written_without_approval_and_can_be_read(
    workspace: WorkspaceFixture, agent: Caller
) -> None:
    (workspace.project / "sub").mkdir()
    (workspace.project / "sub" / ".git").write_text("gitdir: ../.git/modules/sub\n")

    for tool in ("write", "edit", "touch", "rm", "mv"):
        await waits(workspace, agent, tool, **calls_on("/sub/.git")[tool])

    read = await workspace.call("read", agent, path="/sub/.git")
    assert read.result["content"] == "gitdir: ../.git/modules/sub\n"


@pytest.mark.parametrize("path", [["/.env"], {"path": "/.env"}, 7, None, True, b"/.env"], ids=repr)
async def test_case_24_path_that_is_not_a_string_is_an_invalid_argument(
    workspace: WorkspaceFixture, agent: Caller, path: object
) -> None:
    for tool, arguments in calls_on("/x").items():
        key = "source" if tool == "mv" else "path"
        outcome = await workspace.call(tool, agent, **{**arguments, key: path})
        assert outcome.error is not None
        assert set(outcome.error.fields) == {key}, tool
    assert path_state(workspace) == {}


async def test_case_12_pkg_is_not_written(workspace: WorkspaceFixture, agent: Caller) -> None:
    workspace = with_tools(workspace, put, get)
    (workspace.mount("pkg") / "a.md").write_text("theirs")
    allowed = {"put": {"allowed": True}, "get": {"allowed": True}}
    agent = await trusted(workspace, tool_permissions=allowed)

    for path in ("@pkg/a.md", "@pkg/new.md", "@pkg/.env"):
        outcome = await workspace.call("put", agent, path=path, text="mine")
        assert type(outcome.error) is ReadOnlyMount
        assert outcome.state is OutcomeState.DENIED
    assert (await workspace.call("get", agent, path="@pkg/a.md")).result == "theirs"
    assert [path.read_text() for path in workspace.mount("pkg").iterdir()] == ["theirs"]


async def test_protected_names_are_protected_in_every_mount(workspace: WorkspaceFixture) -> None:
    workspace = with_tools(workspace, put, get)
    agent = await trusted(workspace, tool_permissions={"put": {"allowed": True}, "get": {"allowed": True}})

    for mount in ("project", "central", "state"):
        await refused(workspace, agent, "get", path=f"@{mount}/.env")
        await refused(workspace, agent, "put", path=f"@{mount}/d/.env", text="x")


async def test_batch_withholds_the_protected_file_and_returns_the_others(
    workspace: WorkspaceFixture, agent: Caller
) -> None:
    for path in ("/a.txt", "/.env", "/b.txt"):
        await workspace.result("write", path=path, content=SECRET if path == "/.env" else f"{path}\n")
    paths = ["/a.txt", "/.env", "/.git/config", "/.E\u200bNV", "/b.txt"]

    shown = (await workspace.call("cat", agent, paths=paths, show_headers=True)).result
    read = (await workspace.call("read_multiple_files", agent, paths=paths)).result["files"]

    assert [file["error"] is None for file in shown["files"]] == [True, False, False, False, True]
    assert [file["success"] for file in read] == [True, False, False, False, True]
    assert [file["content"] for file in read] == ["/a.txt\n", None, None, None, "/b.txt\n"]
    assert all("protected" in file["error"] for file in read if not file["success"])
    assert "hunter2" not in str(shown)
    assert "hunter2" not in str(read)


async def test_protected_names_are_listed_without_their_contents(workspace: WorkspaceFixture, agent: Caller) -> None:
    await workspace.result("write", path="/.env", content=SECRET)
    (workspace.project / ".git").mkdir()
    (workspace.project / ".git" / "config").write_text("[core]\n")

    listed = (await workspace.call("ls", agent, recursive=True, include_ignored=True)).result["entries"]

    real = [entry["path"] for entry in listed if not entry["is_virtual"]]
    assert real == ["/.git", "/.env", "/.git/config"]


async def test_no_version_of_a_protected_file_is_returned(workspace: WorkspaceFixture, agent: Caller) -> None:
    made = await workspace.result("write", path="/.env", content=SECRET)
    later = await workspace.result("write", path="/.env", content="KEY=2\n", overwrite=True)

    await refused(workspace, agent, "file_versions", file_id=made["file_id"])
    for version in (made["version_id"], later["version_id"]):
        await refused(workspace, agent, "file_version", version_id=version)
    await refused(workspace, agent, "file_compare", from_version=made["version_id"], to_version=later["version_id"])
    await refused(workspace, agent, "file_restore", file_id=made["file_id"], version_id=made["version_id"])
    await workspace.result("rm", path="/.env")
    await refused(workspace, agent, "file_restore", file_id=made["file_id"])
    await refused(workspace, agent, "file_version", version_id=made["version_id"])
    assert "hunter2" not in str((await workspace.call("deleted_files", agent)).result)


@pytest.mark.parametrize(("before", "after"), [("/.env", "/notes.txt"), ("/notes.txt", "/.env")])
async def test_version_from_a_protected_time_is_not_returned(
    workspace: WorkspaceFixture, agent: Caller, before: str, after: str
) -> None:
    made = await workspace.result("write", path=before, content=SECRET)
    await workspace.result("mv", source=before, destination=after)
    versions = (await workspace.result("file_versions", file_id=made["file_id"]))["versions"]
    protected = [version["version_id"] for version in versions if version["path"] == "/.env"]

    for version in protected:
        await refused(workspace, agent, "file_version", version_id=version)
    # A file that has a protected name now is not returned under its earlier name either.
    if after == "/.env":
        await refused(workspace, agent, "file_version", version_id=made["version_id"])
        await refused(workspace, agent, "file_compare", from_version=made["version_id"], to_version=made["version_id"])


async def test_owner_lifts_a_single_pattern_for_one_agent(workspace: WorkspaceFixture, agent: Caller) -> None:
    for path in ("/.env", "/.env.local", "/.git/config"):
        await workspace.result("write", path=path, content=SECRET)
    lifted = await trusted(workspace, unprotected_paths=[".env"])

    assert (await workspace.call("read", lifted, path="/.env")).result["content"] == SECRET
    assert (await workspace.call("write", lifted, path="/.ENV", content="x")).succeeded
    assert (await workspace.call("edit", lifted, path="/.env", old_string="hunter2", new_string="3")).succeeded
    await refused(workspace, lifted, "read", path="/.env.local")
    await refused(workspace, lifted, "read", path="/.git/config")
    await refused(workspace, agent, "read", path="/.env")


@pytest.mark.parametrize("synced", [True, False], ids=["known", "on disk only"])
@pytest.mark.parametrize("child", [".env", "deep/er/.git/config", "x/deploy.pem"])
async def test_folder_with_a_protected_child_is_not_moved(
    workspace: WorkspaceFixture, agent: Caller, child: str, synced: bool
) -> None:
    await workspace.result("write", path="/app/main.py", content="print()\n")
    inside = workspace.project / "app" / child
    if synced:
        await workspace.result("write", path=f"/app/{child}", content=SECRET)
    else:
        inside.parent.mkdir(parents=True, exist_ok=True)
        inside.write_text(SECRET)
    before = path_state(workspace)

    await refused(workspace, agent, "mv", source="/app", destination="/elsewhere")

    assert path_state(workspace) == before
    assert (await workspace.call("mv", source="/app", destination="/elsewhere")).succeeded


async def test_moving_into_a_folder_that_would_protect_it_needs_approval(
    workspace: WorkspaceFixture, agent: Caller
) -> None:
    await workspace.result("write", path="/hooks/pre-commit", content="#!/bin/sh\n")
    (workspace.project / ".git").mkdir()

    for destination in ("/.git/", "/.git/hooks", "/.githooks", "/.git"):
        await waits(workspace, agent, "mv", source="/hooks", destination=destination)
    await refused(workspace, agent, "mv", source="/hooks", destination="/secrets")

    assert (workspace.project / "hooks" / "pre-commit").exists()


@pytest.mark.parametrize("target", [".env", "sub/../.env", "./.env"])
async def test_case_31_alias_of_a_protected_file_returns_nothing(
    workspace: WorkspaceFixture, agent: Caller, target: str
) -> None:
    (workspace.project / "sub").mkdir()
    (workspace.project / ".env").write_text(SECRET)
    (workspace.project / "notes").symlink_to(target)

    for tool, arguments in calls_on("/notes").items():
        outcome = await workspace.call(tool, agent, **arguments)
        assert "hunter2" not in str(outcome), tool
        if tool in ("read", "write", "edit"):
            assert isinstance(outcome.error, SymlinkNotFollowed | PathOutsideMount), tool
    assert (workspace.project / ".env").read_text() == SECRET
    for file_id in await known_files(workspace):
        assert "hunter2" not in str(await workspace.call("file_versions", agent, file_id=file_id))


async def known_files(workspace: WorkspaceFixture) -> list[str]:
    async with workspace.database.as_system() as connection:
        cursor = await connection.execute(
            "select id::text from toolcrib.files where workspace_id = %s", (workspace.caller.workspace_id,)
        )
        return [found for (found,) in await cursor.fetchall()]


@pytest.mark.parametrize("first", ["read", "touch", "edit", "write", "mv", "file_info"])
async def test_case_32_hard_link_to_a_protected_file_returns_nothing(
    workspace: WorkspaceFixture, agent: Caller, first: str
) -> None:
    (workspace.project / ".env").write_text(SECRET)
    os.link(workspace.project / ".env", workspace.project / "notes")

    outcome = await workspace.call(first, agent, **calls_on("/notes")[first])

    assert "hunter2" not in str(outcome)
    # Its content is not in the history either, into which the call may have imported it.
    for file_id in await known_files(workspace):
        found = await workspace.call("file_versions", agent, file_id=file_id)
        for version in (found.result or {}).get("versions", ()):
            given = await workspace.call("file_version", agent, version_id=version["version_id"])
            assert "hunter2" not in str(given), first
    assert (workspace.project / ".env").read_text() == SECRET


async def test_case_32_tracked_file_that_became_a_hard_link_is_not_imported_by_an_agent(
    workspace: WorkspaceFixture, agent: Caller
) -> None:
    await workspace.result("write", path="/notes", content="mine\n")
    (workspace.project / ".env").write_text(SECRET)
    (workspace.project / "notes").unlink()
    os.link(workspace.project / ".env", workspace.project / "notes")

    for tool, arguments in calls_on("/notes").items():
        outcome = await workspace.call(tool, agent, **arguments)
        assert isinstance(outcome.error, ProtectedPath), tool

    [file_id] = await known_files(workspace)
    assert len((await workspace.result("file_versions", file_id=file_id))["versions"]) == 1


async def test_case_40_workspace_with_a_replaced_root_is_not_served_from_elsewhere(
    workspace: WorkspaceFixture, agent: Caller
) -> None:
    await workspace.result("write", path="/a.txt", content="mine\n")
    elsewhere, root = workspace.settings.data_dir / "elsewhere", workspace.project
    elsewhere.mkdir()
    (elsewhere / "a.txt").write_text(SECRET)
    root.rename(root.with_name("kept"))
    root.symlink_to(elsewhere)

    read = await workspace.call("read", agent, path="/a.txt")
    written = await workspace.call("write", agent, path="/b.txt", content="x")

    # The root is held open: what is at its path now does not matter.
    assert (read.result["content"], written.succeeded) == ("mine\n", True)
    assert (root.with_name("kept") / "b.txt").read_text() == "x"
    assert [path.name for path in elsewhere.iterdir()] == ["a.txt"]
    assert (elsewhere / "a.txt").read_text() == SECRET


async def test_case_41_of_writers_with_one_hash_one_succeeds(workspace: WorkspaceFixture, agent: Caller) -> None:
    read = await workspace.result("write", path="/a.txt", content="start\n")
    edit = {"path": "/a.txt", "old_string": "start", "last_read_hash": read["hash"]}

    outcomes = await asyncio.gather(*(workspace.call("edit", agent, **edit, new_string=str(n)) for n in range(6)))

    assert sum(outcome.succeeded for outcome in outcomes) == 1


# The acceptance criteria of the sandbox, under their ids.


@pytest.mark.parametrize("write", [False, True])
async def test_ac3_path_that_climbs_to_etc_passwd_is_a_traversal(
    workspace: WorkspaceFixture, agent: Caller, write: bool
) -> None:
    tool, more = ("write", {"content": "x"}) if write else ("read", {})

    for caller in (agent, workspace.caller):
        outcome = await workspace.call(tool, caller, path="../../etc/passwd", **more)
        assert type(outcome.error) is PathOutsideMount
        assert "outside" in outcome.error.message


async def test_ac4_link_to_etc_passwd_is_outside(workspace: WorkspaceFixture, agent: Caller) -> None:
    (workspace.project / "alias").symlink_to("/etc/passwd")

    for caller in (agent, workspace.caller):
        for tool in ("read", "edit"):
            outcome = await workspace.call(tool, caller, **calls_on("/alias")[tool])
            assert isinstance(outcome.error, PathOutsideMount), tool
            assert "outside" in outcome.error.message
    assert isinstance(
        (await workspace.call("write", agent, **calls_on("/alias")["write"])).error, SymlinkNotFollowed | CallDenied
    )


async def test_ac5_path_inside_is_accepted_and_resolved(workspace: WorkspaceFixture, agent: Caller) -> None:
    outcome = await workspace.call("write", agent, path="src/./x/../a.py", content="print()\n")

    assert outcome.result["path"] == "/src/a.py"
    assert (workspace.project / "src" / "a.py").read_text() == "print()\n"


@pytest.mark.parametrize("write", [True, False])
async def test_ac6_env_file_is_a_dangerous_path(workspace: WorkspaceFixture, agent: Caller, write: bool) -> None:
    tool, more = ("write", {"content": "x"}) if write else ("read", {})

    await refused(workspace, agent, tool, path=".env", **more)
