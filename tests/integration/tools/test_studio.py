"""The `studio` toolset: `file_read` and `file_write`, under the test names that their authors list.

The tests of task 5 (types and registry) are in the registry's own tests, where the one that MCP servers supersede is
named.
"""

from pathlib import Path

from tests.integration.conftest import WorkspaceFixture, new_person
from tests.integration.tools.builders import speaker, tool_result
from toolcrib.core.callers import Caller
from toolcrib.core.errors import PathOutsideMount, PermissionDenied, ProtectedPath
from toolcrib.core.ids import WorkspaceId
from toolcrib.core.tool_calls import Danger, ToolCategory
from toolcrib.storage.users import ActingUser
from toolcrib.tools.dialects.studio_dialect import file_read, file_write


def test_names_dangers_and_categories() -> None:
    assert (file_read.name, file_read.danger) == ("file_read", Danger.SAFE)
    assert (file_write.name, file_write.danger) == ("file_write", Danger.DANGEROUS)
    assert {tool.category for tool in (file_read, file_write)} == {ToolCategory.FILE}
    assert file_read.input_schema["required"] == ["path"]
    assert file_write.input_schema["required"] == ["path", "content"]


# file_read


async def test_read_existing_file_succeeds_with_content(workspace: WorkspaceFixture) -> None:
    written = await tool_result(workspace, "file_write", path="a.txt", content="hello")

    result = await tool_result(workspace, "file_read", path="a.txt")

    assert result == {
        "output": "hello",
        "metadata": {"path": "a.txt", "bytes": 5, "sha256": written["metadata"]["sha256"], "truncated": False},
        "is_error": False,
    }


async def test_read_non_existent_file_is_an_error_result(workspace: WorkspaceFixture) -> None:
    assert await tool_result(workspace, "file_read", path="sub/none.txt") == {
        "output": "file not found: sub/none.txt",
        "metadata": {"code": "NOT_FOUND"},
        "is_error": True,
    }


async def test_read_outside_sandbox_is_raised_and_not_a_result(workspace: WorkspaceFixture, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("secret")
    (workspace.project / "link").symlink_to(tmp_path / "a.txt")

    for path in ("../../etc/passwd", "/etc/passwd", str(tmp_path / "a.txt"), "@state/a", "@pkg/a", "link"):
        outcome = await workspace.call("file_read", path=path)
        assert type(outcome.error) is PathOutsideMount, path
        assert outcome.result is None


async def test_read_with_relative_path_resolves_correctly(workspace: WorkspaceFixture) -> None:
    await tool_result(workspace, "file_write", path="src/a.txt", content="here")

    for path in ("src/a.txt", "./src//a.txt", "src/sub/../a.txt", "@project/src/a.txt"):
        assert (await tool_result(workspace, "file_read", path=path))["output"] == "here"


async def test_read_large_file_is_truncated_with_a_message(workspace: WorkspaceFixture) -> None:
    (workspace.project / "big.txt").write_text("x" * 1_500_000)

    result = await tool_result(workspace, "file_read", path="big.txt")

    assert result["output"] == "x" * 1_000_000 + "\n[truncated: the first 1,000,000 of 1,500,000 bytes]"
    assert (result["metadata"]["truncated"], result["metadata"]["bytes"]) == (True, 1_500_000)


async def test_read_binary_file_returns_content(workspace: WorkspaceFixture) -> None:
    (workspace.project / "a.bin").write_bytes(b"\x00\x01\xffend")

    assert (await tool_result(workspace, "file_read", path="a.bin"))["output"] == "\0\x01\ufffdend"


async def test_non_file_and_invalid_argument_are_error_results(workspace: WorkspaceFixture) -> None:
    (workspace.project / "folder").mkdir()

    for arguments in ({"path": "folder"}, {"path": ""}, {"path": 5}, {}, {"path": "a", "mode": "r"}):
        result = await tool_result(workspace, "file_read", **arguments)
        assert (result["is_error"], bool(result["output"])) == (True, True), arguments
    assert (await tool_result(workspace, "file_read"))["output"] == "path: This field is required."


# file_write


async def test_write_new_file_creates_file_with_content(workspace: WorkspaceFixture) -> None:
    result = await tool_result(workspace, "file_write", path="a.txt", content="data €")

    assert (result["output"], result["is_error"]) == ("wrote 8 bytes to a.txt", False)
    assert set(result["metadata"]) == {"path", "bytes", "sha256", "file_id", "version_id"}
    assert (workspace.project / "a.txt").read_text() == "data €"
    assert (workspace.project / "a.txt").stat().st_mode & 0o777 == 0o644


async def test_write_to_existing_file_overwrites_content(workspace: WorkspaceFixture) -> None:
    (workspace.project / "disk.txt").write_text("old")
    await tool_result(workspace, "file_write", path="known.txt", content="old")

    for path in ("disk.txt", "known.txt"):
        assert (await tool_result(workspace, "file_write", path=path, content="new"))["is_error"] is False
        assert (workspace.project / path).read_text() == "new"


async def test_write_with_nested_path_creates_parent_directories(workspace: WorkspaceFixture) -> None:
    await tool_result(workspace, "file_write", path="new/dir/file.txt", content="data")

    assert (workspace.project / "new" / "dir" / "file.txt").read_text() == "data"


async def test_write_outside_sandbox_is_raised(workspace: WorkspaceFixture, tmp_path: Path) -> None:
    (workspace.project / "out").symlink_to(tmp_path)
    (workspace.project / "file").symlink_to(tmp_path / "made.txt")
    inside = set(tmp_path.iterdir())

    for path in ("../x", str(tmp_path / "x"), "@pkg/x", "@state/x", "out/x", "file", f"{workspace.project}/../../x"):
        outcome = await workspace.call("file_write", path=path, content="x")
        assert type(outcome.error) is PathOutsideMount, path
        assert outcome.result is None
    assert set(tmp_path.iterdir()) == inside


async def test_write_to_env_is_raised_as_a_dangerous_path(workspace: WorkspaceFixture) -> None:
    agent = await speaker(workspace)

    for path in (".env", "sub/.env", str(workspace.project / ".env"), "@central/.env"):
        outcome = await workspace.call("file_write", agent, path=path, content="KEY=1")
        assert type(outcome.error) is ProtectedPath, path
        assert outcome.result is None
    assert list(workspace.project.iterdir()) == []


async def test_write_with_empty_content_creates_an_empty_file(workspace: WorkspaceFixture) -> None:
    assert (await tool_result(workspace, "file_write", path="a.txt", content=""))["output"] == "wrote 0 bytes to a.txt"
    assert (workspace.project / "a.txt").read_bytes() == b""


async def test_permission_denied_is_an_error_result(workspace: WorkspaceFixture) -> None:
    agent = await speaker(workspace, tool_permissions={"file_write": {"allowed": True, "paths": ["src/**"]}})

    outcome = await workspace.call("file_write", agent, path="a.txt", content="x")

    assert type(outcome.error) is PermissionDenied
    assert outcome.result["is_error"] is True
    (workspace.project / "folder").mkdir()
    assert (await tool_result(workspace, "file_write", path="folder", content="x"))["is_error"] is True
    too_long = await tool_result(
        workspace, "file_write", path="b.txt", content="x" * (workspace.settings.max_file_bytes + 1)
    )
    assert too_long["metadata"] == {"code": "TOO_LARGE"}


# Mounts


async def test_both_mounts_are_read_and_written(workspace: WorkspaceFixture) -> None:
    await tool_result(workspace, "file_write", path="@central/plan.md", content="central")
    absolute = str(workspace.mount("central") / "plan.md")

    assert (workspace.mount("central") / "plan.md").read_text() == "central"
    assert (await tool_result(workspace, "file_read", path=absolute))["metadata"]["path"] == "@central/plan.md"
    assert (await tool_result(workspace, "file_write", path=absolute, content="new"))[
        "output"
    ] == "wrote 3 bytes to @central/plan.md"
    assert (await tool_result(workspace, "file_read", path="@central/plan.md"))["output"] == "new"


async def test_absolute_path_inside_the_project_is_a_workspace_path(workspace: WorkspaceFixture) -> None:
    await tool_result(workspace, "file_write", path=f"{workspace.project}/src/../a.txt", content="x")

    assert (workspace.project / "a.txt").read_text() == "x"
    assert (await tool_result(workspace, "file_read", path=f"{workspace.project}//a.txt"))["metadata"][
        "path"
    ] == "a.txt"
    assert (await tool_result(workspace, "file_read", path=str(workspace.project)))["is_error"] is True


async def test_absolute_path_is_checked_like_any_other(workspace: WorkspaceFixture) -> None:
    agent = await speaker(
        workspace,
        tool_permissions={name: {"allowed": True, "paths": ["src/**"]} for name in ("file_read", "file_write")},
    )
    inside, elsewhere = str(workspace.project / "src" / "a.txt"), str(workspace.project / "a.txt")

    assert (await workspace.call("file_write", agent, path=inside, content="x")).succeeded
    assert type((await workspace.call("file_write", agent, path=elsewhere, content="x")).error) is PermissionDenied
    assert type((await workspace.call("file_read", agent, path=elsewhere)).error) is PermissionDenied


async def test_persons_own_directory_is_the_project(workspace: WorkspaceFixture, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (tmp_path / "alias").symlink_to(own)
    user_id = await new_person(workspace.stores)
    created = await workspace.stores.workspaces.create(
        ActingUser(user_id), name="own", node=workspace.settings.node_name, root_path=str(tmp_path / "alias")
    )
    caller = Caller(WorkspaceId(created.id), user_id)

    for root in (own, tmp_path / "alias"):
        assert (await workspace.call("file_write", caller, path=f"{root}/a.txt", content="mine")).succeeded
    assert (own / "a.txt").read_text() == "mine"
    assert type((await workspace.call("file_read", caller, path=f"{own}-other/a.txt")).error) is PathOutsideMount
    # For another workspace it is outside.
    assert type((await workspace.call("file_read", path=f"{own}/a.txt")).error) is PathOutsideMount
