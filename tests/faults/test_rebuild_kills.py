"""A process dies at each step of rebuilding a lost tree: the next one goes on, and nothing is recorded as deleted."""

import secrets
import shutil
from itertools import count
from pathlib import Path

import pytest

from tests.databases import DatabaseUrls
from tests.faults.crasher import crash_rebuild
from tests.faults.processes import Site, engine_at, recover_node
from tests.integration.conftest import WorkspaceFixture, new_caller
from tests.integration.gate.builders import rows
from toolcrib.settings import Settings
from toolcrib.storage.database import Database
from toolcrib.wiring.tool_runtime import assemble


@pytest.fixture
async def workspace(database: Database, settings: Settings) -> WorkspaceFixture:
    """A workspace with a few files on its own node."""
    engine = assemble(settings.model_copy(update={"node_name": f"node-{secrets.token_hex(4)}"}), database)
    workspace = WorkspaceFixture(engine, await new_caller(engine))
    for path, content in {"/a.txt": "a\n", "/d/b.txt": "b\n", "/d/e/c.txt": "", "/.gitignore": "x\n"}.items():
        await workspace.result("write", path=path, content=content)
    (workspace.project / "d/b.txt").chmod(0o755)
    (workspace.project / "link").symlink_to("d/b.txt")
    await workspace.result("read", path="/d/b.txt")
    await workspace.result("mv", source="/link", destination="/d/link")
    return workspace


def content_of(root: Path) -> dict[str, tuple[int, bytes]]:
    """Return mode and content of everything below a directory; of a link, where it leads."""
    return {str(path.relative_to(root)): (path.lstat().st_mode, _bytes(path)) for path in sorted(root.rglob("*"))}


def _bytes(path: Path) -> bytes:
    if path.is_symlink():
        return str(path.readlink()).encode()
    return b"" if path.is_dir() else path.read_bytes()


async def check_killed_after(steps: int, workspace: WorkspaceFixture, urls: DatabaseUrls) -> bool:
    """Lose the disk, and kill its rebuild after some steps. Return whether it came to its end."""
    before, root = content_of(workspace.project), workspace.project.parent
    known = await rows(workspace, "select id from toolcrib.versions where workspace_id = %s order by id")
    shutil.rmtree(root)
    site = Site(urls.app, urls.system, workspace.settings.data_dir, workspace.settings.node_name)

    has_ended = crash_rebuild(site, workspace.caller.workspace_id, steps=steps)
    async with engine_at(site) as engine:
        # What the next server does: it recovers, serves, and completes the tree in the background.
        services = engine.workspace_services
        await recover_node(engine)
        later = WorkspaceFixture(engine, workspace.caller)
        assert (await later.result("read", path="/d/b.txt"))["content"] == "b\n"
        listed = (await later.result("ls", path="/", recursive=True))["entries"]
        assert {entry["path"][1:] for entry in listed} == set(before)
        await services.sync.trees.complete(workspace.caller.workspace_id)

        assert content_of(workspace.project) == before
        assert await rows(later, "select id from toolcrib.versions where workspace_id = %s order by id") == known
        assert not list(root.rglob(".~toolcrib*"))
    return has_ended


@pytest.mark.gate_cases(2)
@pytest.mark.parametrize("steps", [0, 3, 7, 12, 25])
async def test_rebuild_continues_after_a_kill(
    workspace: WorkspaceFixture, database_urls: DatabaseUrls, steps: int
) -> None:
    await check_killed_after(steps, workspace, database_urls)


@pytest.mark.crash
async def test_rebuild_continues_after_a_kill_at_any_step(
    workspace: WorkspaceFixture, database_urls: DatabaseUrls
) -> None:
    for steps in count():
        if await check_killed_after(steps, workspace, database_urls):
            break

    assert steps > 25
