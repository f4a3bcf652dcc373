"""A disk that was lost: the trees are rebuilt from the history, and nothing is recorded as deleted."""

import asyncio
import json
import os
import shutil
import stat
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.fakes.packages import package_of
from tests.integration.conftest import WorkspaceFixture
from tests.integration.gate.builders import rows
from tests.integration.tools.shell.builders import new_workspace_fixture, ran
from toolcrib.core.errors import Conflict, Superseded
from toolcrib.core.paths import Mount, WorkspacePath, mount_root
from toolcrib.settings import Settings
from toolcrib.storage.change_sets import AppliedFile
from toolcrib.storage.database import Database
from toolcrib.storage.homes import HomeStore
from toolcrib.storage.users import ActingUser
from toolcrib.workspace.packages.package_archive import package_in
from toolcrib.workspace.sync.path_state import MOST_BYTES
from toolcrib.workspace.sync.rebuild import TreeRebuilder
from toolcrib.workspace.sync.tree_marker import TreeMarker


@pytest.fixture
async def workspace(database: Database, settings: Settings) -> WorkspaceFixture:
    """A workspace whose commands run in a sandbox that is already probed."""
    return await new_workspace_fixture(database, settings)


def beside(workspace: WorkspaceFixture) -> Path:
    return workspace.settings.data_dir / "workspaces" / str(workspace.caller.workspace_id)


def trees(workspace: WorkspaceFixture) -> TreeRebuilder:
    return workspace.engine.workspace_services.sync.trees


async def complete(workspace: WorkspaceFixture, **how: bool) -> TreeMarker:
    return await trees(workspace).complete(workspace.caller.workspace_id, **how)


def new_process(workspace: WorkspaceFixture) -> WorkspaceFixture:
    """Return the workspace as another process sees it."""
    return workspace.with_engine(sandbox=workspace.engine.sandbox)


def without_disk(workspace: WorkspaceFixture) -> WorkspaceFixture:
    """Lose the disk, and return the workspace as the next process sees it."""
    lose_disk(workspace)
    return new_process(workspace)


def lose_disk(workspace: WorkspaceFixture) -> None:
    beside(workspace).rename(workspace.settings.data_dir / "lost")


def content_of(root: Path) -> dict[str, tuple[Any, ...]]:
    """Return kind, mode and content of everything below a directory."""
    found: dict[str, tuple[Any, ...]] = {}
    for path in sorted(root.rglob("*")):
        mode = path.lstat().st_mode
        name = str(path.relative_to(root))
        if path.is_symlink():
            found[name] = ("link", os.readlink(path))
        elif path.is_dir():
            found[name] = ("folder", stat.S_IMODE(mode))
        else:
            found[name] = ("file", stat.S_IMODE(mode), path.read_bytes())
    return found


async def deletions(workspace: WorkspaceFixture) -> list[tuple[Any, ...]]:
    statement = """
        select v.path, c.author_kind from toolcrib.versions v
        join toolcrib.change_sets c on c.workspace_id = v.workspace_id and c.id = v.change_set_id
        where v.deleted and v.workspace_id = %s order by v.path
    """
    return await rows(workspace, statement)


async def versions(workspace: WorkspaceFixture) -> list[tuple[Any, ...]]:
    return await rows(workspace, "select id from toolcrib.versions where workspace_id = %s order by id")


async def fill(workspace: WorkspaceFixture) -> dict[str, tuple[Any, ...]]:
    """Make files of all kinds, and return what is on disk then."""
    await ran(
        workspace,
        """
        mkdir -p src/deep/er locked hollow && chmod 750 src/deep
        printf 'print(1)\\n' > src/main.py && chmod 755 src/main.py
        printf 'needle\\n' > src/deep/er/a.txt && : > src/empty
        head -c 300000 /dev/urandom > src/random.bin
        ln -s ../main.py src/deep/link && ln -s nowhere dangling
        printf 'kept' > locked/kept && chmod 500 locked
        printf 'ignored/\\n' > .gitignore
        printf 'plan' > /central/plan.md && printf 'note' > /state/note.md
        """,
    )
    await workspace.result("write", path="/notes/ünïcode name.md", content="written\n")
    return content_of(workspace.project)


async def test_lost_disk_is_rebuilt_byte_for_byte(workspace: WorkspaceFixture) -> None:
    before = await fill(workspace)
    known = await versions(workspace)

    after = without_disk(workspace)
    marker = await complete(after)

    assert content_of(after.project) == before
    assert (beside(after) / "central/plan.md").read_text() == "plan"
    [note] = beside(after).glob("state/*/note.md")
    assert note.read_text() == "note"
    assert marker.lost == ()
    assert await deletions(after) == []
    assert await versions(after) == known
    assert await rows(after, "select file_id from toolcrib.pending_applies where workspace_id = %s") == []
    # Reading books nothing either, in this process or in the next.
    for process in (after, new_process(after)):
        assert (await process.result("read", path="/src/main.py"))["content"] == "print(1)\n"
        assert (await process.result("ls", path="/", recursive=True))["entries"]
    assert await versions(after) == known


async def test_file_is_read_before_the_rest_is_rebuilt(workspace: WorkspaceFixture) -> None:
    await fill(workspace)
    after = without_disk(workspace)

    read = await after.result("read", path="/src/deep/er/a.txt")

    assert read["content"] == "needle\n"
    on_disk = {str(path.relative_to(after.project)) for path in after.project.rglob("*") if path.is_file()}
    assert on_disk == {".gitignore", "src/deep/er/a.txt"}
    assert TreeMarker.load(beside(after)) != await complete(after)


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("ls", {"path": "/", "recursive": True}),
        ("ls", {"path": "/src"}),
        ("glob", {"pattern": "**/*"}),
        ("find", {"path": "/", "name": "*.*"}),
        ("grep", {"pattern": "needle|print"}),
        ("file_info", {"path": "/src/main.py"}),
    ],
)
async def test_listing_and_search_show_the_whole_tree(
    workspace: WorkspaceFixture, tool: str, arguments: dict[str, Any]
) -> None:
    await fill(workspace)
    before = await workspace.result(tool, **arguments)

    after = await without_disk(workspace).result(tool, **arguments)

    assert _without_times(after) == _without_times(before)


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        names = {"call_id", "modified", "modified_at", "updated_at", "accessed_at", "created", "created_at", "mtime"}
        return {name: _without_times(inner) for name, inner in value.items() if name not in names}
    return [_without_times(inner) for inner in value] if isinstance(value, list) else value


async def test_first_command_sees_the_whole_tree(workspace: WorkspaceFixture) -> None:
    before = await fill(workspace)
    after = without_disk(workspace)

    said = (await ran(after, "find . -mindepth 1 | sort; cat src/deep/link; echo more >> src/empty"))["output"]

    assert sorted(said.splitlines()[:-1]) == sorted(f"./{name}" for name in before)
    assert said.splitlines()[-1] == "print(1)"
    assert (after.project / "src/empty").read_text() == "more\n"
    assert await deletions(after) == []


async def test_changes_during_the_rebuild_are_kept(workspace: WorkspaceFixture) -> None:
    before = await fill(workspace)
    after = without_disk(workspace)

    await after.result("edit", path="/src/main.py", old_string="1", new_string="2")
    await after.result("write", path="/src/deep/new.txt", content="new\n")
    await after.result("mv", source="/src/deep", destination="/moved")
    edited = await after.call("rm", path="/notes/ünïcode name.md")
    assert edited.succeeded
    await complete(after)

    wanted = {name.replace("src/deep", "moved"): entry for name, entry in before.items()}
    wanted["src/main.py"] = ("file", 0o755, b"print(2)\n")
    wanted["moved/new.txt"] = ("file", 0o644, b"new\n")
    del wanted["notes/ünïcode name.md"]
    assert content_of(after.project) == wanted
    await after.result("undo", calls=[str(edited.call_id)])
    assert (after.project / "notes/ünïcode name.md").read_text() == "written\n"


async def test_disk_emptied_under_a_running_process_is_rebuilt(workspace: WorkspaceFixture) -> None:
    before = await fill(workspace)
    known = await versions(workspace)
    (workspace.project / "locked").chmod(0o700)
    shutil.rmtree(beside(workspace))

    assert (await workspace.result("read", path="/src/main.py"))["content"] == "print(1)\n"
    await complete(workspace)

    assert content_of(workspace.project) == before
    assert await versions(workspace) == known


async def test_processes_of_one_node_rebuild_together(workspace: WorkspaceFixture) -> None:
    before = await fill(workspace)
    known = await versions(workspace)
    one = without_disk(workspace)
    processes = [one, *(new_process(one) for _ in range(3))]
    read = [process.result("read", path="/src/main.py") for process in processes]

    contents = await asyncio.gather(*read, *map(complete, processes))

    assert {one["content"] for one in contents[: len(read)]} == {"print(1)\n"}
    assert content_of(one.project) == before
    assert await versions(one) == known


async def test_tree_without_a_marker_is_kept_as_it_is(workspace: WorkspaceFixture) -> None:
    await workspace.result("write", path="/kept.txt", content="kept\n")
    await workspace.result("write", path="/changed.txt", content="ours\n")
    await workspace.result("write", path="/deleted.txt", content="deleted\n")
    (beside(workspace) / "marker.json").unlink()
    (workspace.project / "changed.txt").write_text("theirs\n")
    (workspace.project / "deleted.txt").unlink()
    (workspace.project / "new.txt").write_text("new\n")

    after = new_process(workspace)
    marker = await complete(after)

    assert (marker.trees, marker.lost) == ((), ())
    assert (await after.result("read", path="/changed.txt"))["content"] == "theirs\n"
    assert (await after.call("read", path="/deleted.txt")).error is not None
    names = [entry["path"] for entry in (await after.result("ls", path="/"))["entries"]]
    assert names == ["/changed.txt", "/kept.txt", "/new.txt"]
    assert await deletions(after) == [("/deleted.txt", "external")]


async def test_with_a_marker_what_is_missing_was_deleted(workspace: WorkspaceFixture) -> None:
    await workspace.result("write", path="/a.txt", content="a\n")
    (workspace.project / "a.txt").unlink()

    after = new_process(workspace)

    assert (await after.call("read", path="/a.txt")).error is not None
    assert await deletions(after) == [("/a.txt", "external")]


async def own_directory(workspace: WorkspaceFixture, own: Path) -> WorkspaceFixture:
    """Return a workspace of the same person in their own directory, with a file in it."""
    own.mkdir()
    created = await workspace.stores.workspaces.create(
        ActingUser(workspace.caller.user_id), name="own", node=workspace.settings.node_name, root_path=str(own)
    )
    here = replace(workspace, caller=replace(workspace.caller, workspace_id=created.id))
    await here.result("write", path="/src/a.txt", content="a\n")
    await ran(here, "printf plan > /central/plan.md")
    return here


async def test_own_directory_that_is_empty_is_not_rebuilt_unasked(workspace: WorkspaceFixture, tmp_path: Path) -> None:
    own = tmp_path / "own"
    here = await own_directory(workspace, own)
    shutil.rmtree(own / "src")

    after = without_disk(here)
    outcome = await after.call("read", path="/src/a.txt")

    assert outcome.error is not None
    assert isinstance(outcome.error, Conflict)
    assert str(own) in outcome.error.message
    assert "toolcrib restore" in outcome.error.message
    assert list(own.iterdir()) == []
    assert await deletions(after) == []

    await complete(after, asked=True)
    assert (own / "src/a.txt").read_text() == "a\n"
    assert (await after.result("file_read", path="/central/plan.md"))["output"] == "plan"


async def test_person_says_that_their_directory_is_right_as_it_is(workspace: WorkspaceFixture, tmp_path: Path) -> None:
    own = tmp_path / "own"
    here = await own_directory(workspace, own)
    shutil.rmtree(own / "src")

    after = without_disk(here)
    await complete(after, adopt=True)

    assert (await after.call("read", path="/src/a.txt")).error is not None
    assert list(own.iterdir()) == []
    assert ("/src/a.txt", "external") in await deletions(after)
    assert (await after.result("file_read", path="/central/plan.md"))["output"] == "plan"


async def test_own_directory_with_content_stays_as_it_is(workspace: WorkspaceFixture, tmp_path: Path) -> None:
    own = tmp_path / "own"
    here = await own_directory(workspace, own)
    (own / "src/a.txt").unlink()
    (own / "theirs.txt").write_text("theirs\n")

    after = without_disk(here)
    await complete(after, asked=True)

    assert content_of(own) == {"src": ("folder", 0o755), "theirs.txt": ("file", 0o644, b"theirs\n")}
    assert (await after.result("file_read", path="/central/plan.md"))["output"] == "plan"


async def test_content_that_only_the_disk_had_is_listed_as_lost(workspace: WorkspaceFixture) -> None:
    await workspace.result("write", path="/.gitignore", content="build/\n")
    await ran(workspace, "mkdir build; echo made > build/out")
    removed = await workspace.call("bash", command="rm -r build")
    await workspace.result("undo", calls=[str(removed.call_id)])
    with (workspace.project / "large").open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    await workspace.result("mv", source="/large", destination="/larger")

    after = without_disk(workspace)
    await after.result("ls", path="/")
    marker = await complete(after)

    lost = {one.path: one for one in marker.lost}
    assert set(lost) == {"/build", "/larger"}
    assert "ignored" in lost["/build"].reason
    assert (lost["/larger"].bytes, "larger than" in lost["/larger"].reason) == (MOST_BYTES + 1, True)
    assert {("/build", "system"), ("/larger", "system")} <= set(await deletions(after))
    assert [entry["path"] for entry in (await after.result("ls", path="/"))["entries"]] == ["/.gitignore"]
    assert TreeMarker.load(beside(after)) == marker


async def test_lost_package_is_listed_and_logged(workspace: WorkspaceFixture) -> None:
    await workspace.result("write", path="/a.txt", content="a\n")
    await workspace.engine.packages.install(workspace.tenant, package_of(files={"guide.md": "# Guide\n"}))

    after = without_disk(workspace)
    with capture_logs() as logged:
        marker = await complete(after)

    assert [one.path for one in marker.lost] == ["@pkg"]
    assert "install it again" in marker.lost[0].reason
    assert [line["path"] for line in logged if line["event"] == "rebuild.lost"] == ["@pkg"]


async def test_lost_trash_is_listed(workspace: WorkspaceFixture) -> None:
    await workspace.result("write", path="/.gitignore", content="build/\n")
    await ran(workspace, "mkdir build; echo made > build/out")
    removed = await workspace.call("bash", command="rm -r build")

    after = without_disk(workspace)
    marker = await complete(after)

    assert [one.path for one in marker.lost] == ["the trash"]
    undone = await after.call("undo", calls=[str(removed.call_id)])
    assert "neither in the history nor in the trash" in json.dumps([undone.result, str(undone.error)])


async def test_trash_of_a_former_home_is_listed_as_lost(workspace: WorkspaceFixture) -> None:
    await workspace.result("write", path="/.gitignore", content="build/\n")
    await ran(workspace, "mkdir build; echo made > build/out")
    await ran(workspace, "rm -r build")
    settings = workspace.settings.model_copy(
        update={"node_name": "another", "data_dir": workspace.settings.data_dir / "another"}
    )
    homes = HomeStore(workspace.database)
    assert await homes.give_away(workspace.settings.node_name, [workspace.caller.workspace_id], "another")

    marker = await complete(workspace.with_engine(settings, sandbox=workspace.engine.sandbox))

    assert [one.path for one in marker.lost] == ["the trash"]


_GIT = "export HOME=/tmp GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b; "


def git(directory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = ["git", "-c", "safe.directory=*", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(directory)]
    return subprocess.run([*command, *words], capture_output=True, text=True, check=False)


async def test_rebuilt_git_repository_is_whole(workspace: WorkspaceFixture) -> None:
    await ran(
        workspace,
        _GIT + "git init -q -b main sub && cd sub && echo a > a && git add a && git commit -qm one && echo b > a "
        "&& git commit -qam two && git gc -q && git tag v1 && git checkout -qb other && echo c > c && git add c",
    )
    before = content_of(workspace.project)

    after = without_disk(workspace)
    marker = await complete(after)

    assert content_of(after.project) == before
    assert marker.lost == ()
    assert git(after.project / "sub", "fsck").returncode == 0
    assert (await ran(after, "cd sub && git log --oneline main | wc -l && git status --short"))["output"] == "2\nA  c\n"


async def test_repository_of_which_the_history_has_only_a_part_is_listed(workspace: WorkspaceFixture) -> None:
    await ran(workspace, _GIT + "git init -q -b main && echo a > a && git add a && git commit -qm one")
    (workspace.project / "b").write_text("b")
    git(workspace.project, "add", "b")
    assert git(workspace.project, "commit", "-qm", "two").returncode == 0
    # A person looks at a part of what another program did: the history has the branch, but not its commit.
    await workspace.result("read", path="/.git/refs/heads/main")

    after = without_disk(workspace)
    marker = await complete(after)

    assert git(after.project, "fsck").returncode != 0
    [lost] = marker.lost
    assert lost.path == "/.git"
    assert "git fsck" in lost.reason


async def test_rebuild_that_the_restored_database_does_not_know_begins_again(workspace: WorkspaceFixture) -> None:
    before = await fill(workspace)
    after = without_disk(workspace)
    await after.result("read", path="/src/main.py")
    # The database is restored once more, from before the rebuild.
    await rows(after, "delete from toolcrib.pending_applies where workspace_id = %s")

    again = new_process(after)
    await again.result("read", path="/src/empty")
    await complete(again)

    assert content_of(again.project) == before
    assert await deletions(again) == []


async def test_tree_of_an_earlier_epoch_is_discarded_and_rebuilt(workspace: WorkspaceFixture) -> None:
    await workspace.result("write", path="/a.txt", content="a\n")
    (workspace.project / "a.txt").write_text("written after another node became the home\n")
    (workspace.project / "left.txt").write_text("and this\n")
    homes, node, other = HomeStore(workspace.database), workspace.settings.node_name, "another"
    for old, new in ((node, other), (other, node)):
        assert await homes.give_away(old, [workspace.caller.workspace_id], new)

    # In a process that used it before, and in a new one.
    for after in (workspace, new_process(workspace)):
        read = await after.result("read", path="/a.txt")
        await complete(after)

        assert "a\n" in read["content"]
        assert {path.name: path.read_text() for path in after.project.iterdir()} == {"a.txt": "a\n"}
        assert await deletions(after) == []


async def test_disk_that_is_ahead_of_a_restored_database_is_served(workspace: WorkspaceFixture) -> None:
    homes, node, other = HomeStore(workspace.database), workspace.settings.node_name, "another"
    await workspace.result("write", path="/a.txt", content="a\n")
    for old, new in ((node, other), (other, node)):
        assert await homes.give_away(old, [workspace.caller.workspace_id], new)
    await workspace.result("read", path="/a.txt")
    # The dump is from before the workspace moved away and back.
    await rows(workspace, "update toolcrib.workspaces set home_epoch = 0 where id = %s")

    again = new_process(workspace)
    await again.result("write", path="/b.txt", content="b\n")

    assert {path.name for path in again.project.iterdir()} == {"a.txt", "b.txt"}
    assert await deletions(again) == []


async def epoch_of(workspace: WorkspaceFixture) -> int:
    seen = await workspace.stores.files.lookup(workspace.tenant, [mount_root(Mount.PROJECT)])
    return seen.home.epoch


async def test_process_that_checked_the_lost_disk_writes_to_the_new_one(workspace: WorkspaceFixture) -> None:
    await workspace.result("write", path="/a.txt", content="a\n")
    before = await epoch_of(workspace)

    after = without_disk(workspace)
    await complete(after)
    # It has the old directories open, and has checked their marker.
    await workspace.result("write", path="/b.txt", content="b\n")

    assert await epoch_of(after) == before + 1
    assert {path.name: path.read_text() for path in after.project.iterdir()} == {"a.txt": "a\n", "b.txt": "b\n"}
    assert await deletions(after) == []


async def test_nothing_is_written_to_an_emptied_disk(
    workspace: WorkspaceFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The execution log's directory takes the place of @project's, which the next call opens again, and so creates.
    monkeypatch.setattr("toolcrib.workspace.fs.mounts._OPEN_ROOTS", 1)
    await workspace.result("write", path="/a.txt", content="a\n")
    lose_disk(workspace)

    with pytest.raises(Superseded, match="Call again"):
        await workspace.call("write", path="/b.txt", content="b\n")
    await workspace.result("write", path="/b.txt", content="b\n")
    after = new_process(workspace)
    await complete(after)

    assert {path.name: path.read_text() for path in after.project.iterdir()} == {"a.txt": "a\n", "b.txt": "b\n"}
    assert await deletions(after) == []


async def test_workflow_that_begins_on_a_lost_disk_deletes_nothing(workspace: WorkspaceFixture) -> None:
    session = (await workspace.stores.sessions.create(workspace.tenant)).id
    inside = replace(workspace, caller=replace(workspace.caller, session_id=session))
    await ran(inside, "echo note > /state/note.md")

    after = without_disk(inside)
    await after.engine.packages.begin(after.tenant, session, b"# Steps\n")
    await complete(after)

    state = beside(after) / "state" / str(session)
    assert (state / "note.md").read_text() == "note\n"
    assert await deletions(after) == []


async def test_package_is_not_installed_for_a_home_that_is_not_current(workspace: WorkspaceFixture) -> None:
    seen = await workspace.stores.files.lookup(workspace.tenant, [mount_root(Mount.PROJECT)])
    await complete(workspace)
    installed = False

    async def install() -> None:
        nonlocal installed
        installed = True

    contents = await package_in(package_of())
    with pytest.raises(Superseded):
        await workspace.engine.packages.rows.install(workspace.tenant, contents, seen.home, install)

    assert not installed
    assert await workspace.engine.packages.rows.list(workspace.tenant) == []


async def test_late_reader_of_the_lost_disk_does_not_end_the_rebuild(workspace: WorkspaceFixture) -> None:
    path = WorkspacePath(Mount.PROJECT, "/a.txt")
    await workspace.result("write", path="/a.txt", content="a\n")
    seen = await workspace.stores.files.lookup(workspace.tenant, [path])
    [file] = seen.files
    assert file is not None
    assert file.fingerprint is not None
    after = without_disk(workspace)
    await trees(after).ensure(after.caller.workspace_id)

    # The last step of a read that began before.
    late = AppliedFile(file.id, file.version_id, file.fingerprint)
    await workspace.stores.changes.save_fingerprints(workspace.tenant, [late], seen.home)
    await complete(after)

    assert (after.project / "a.txt").read_text() == "a\n"
    assert (await after.result("read", path="/a.txt"))["content"] == "a\n"
    assert await deletions(after) == []
