"""The review of what commands changed: git and ignored folders as one entry each, and what was displaced is kept."""

import pytest

from tests.integration.conftest import WorkspaceFixture
from tests.integration.tools.review_builders import ReviewFixture, review_of
from tests.integration.tools.shell.git_builders import Repository
from toolcrib.workspace.retention_worker import TrashCollector


@pytest.fixture
async def session(workspace: WorkspaceFixture) -> ReviewFixture:
    return await review_of(workspace)


@pytest.mark.req("CT-1", part="one review, by file and by hunk")
async def test_git_and_ignored_folders_are_one_entry_each_and_are_reverted(session: ReviewFixture) -> None:
    repository = Repository(session.workspace)
    repository.person("git init -q -b main; printf 'build/\\n' > .gitignore; echo one > a.txt")
    repository.person("git add -A; git commit -qm first")
    before = repository.state()
    await session.does("bash", command="mkdir build; for n in 1 2 3; do echo $n > build/$n; done; echo two > a.txt")
    await session.does("bash", command="git add a.txt; git commit -qm second")
    assert repository.state() != before

    shown = {one["path"]: one for one in (await session.shown())["files"]}

    assert shown.keys() == {"/a.txt", "/.git", "/build"}
    assert (shown["/.git"]["kind"], shown["/build"]["kind"]) == ("git", "ignored")
    assert shown["/.git"]["note"].startswith("git: 1 commit, 1 branch, index")
    result = await session.decided(all="revert", version=(await session.shown())["version"])
    assert result["conflicts"] == []
    assert repository.state() == before
    assert session.text("/a.txt") == "one\n"
    assert not (session.workspace.project / "build").exists()
    assert (await session.shown())["files"] == []


@pytest.mark.req("CT-1", part="what was displaced is pinned in the trash")
async def test_what_an_unreviewed_command_displaced_stays_in_the_trash(session: ReviewFixture) -> None:
    project = session.workspace.project
    (project / ".gitignore").write_text("build/\n")
    (project / "build").mkdir()
    (project / "build" / "large").write_bytes(b"kept" * 1000)
    await session.does("bash", command="rm -r build")

    await _let_everything_expire(session.workspace)
    [entry] = (await session.shown())["files"]
    assert (entry["path"], entry["change"]) == ("/build", "deleted")
    await session.revert("/build")
    assert (project / "build" / "large").read_bytes() == b"kept" * 1000

    await session.does("bash", command="rm -r build")
    await session.decided(all="keep", version=(await session.shown())["version"])
    assert _trashed(session.workspace) == 1
    await _let_everything_expire(session.workspace)
    assert _trashed(session.workspace) == 0


async def _let_everything_expire(workspace: WorkspaceFixture) -> None:
    async with workspace.database.as_system() as connection:
        await connection.execute(
            "update toolcrib.trash set expires_at = now() where workspace_id = %s", (workspace.caller.workspace_id,)
        )
    services = workspace.engine.workspace_services
    await TrashCollector(services.trash, services.mounts, node=workspace.settings.node_name).empty()


def _trashed(workspace: WorkspaceFixture) -> int:
    folder = workspace.project.parent / "trash"
    return len(list(folder.iterdir())) if folder.exists() else 0
