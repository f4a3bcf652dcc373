"""The limits of a workspace's size: growth beyond them is rejected, and shrinking always works."""

from dataclasses import replace

import pytest

from tests.integration.conftest import WorkspaceFixture, new_caller, new_workspace
from toolcrib.core.errors import TooLarge
from toolcrib.settings import Settings
from toolcrib.storage.database import Database

pytestmark = pytest.mark.req("SY-5", part="files and bytes of a workspace")


async def opened(database: Database, settings: Settings, **most: int) -> WorkspaceFixture:
    return await new_workspace(database, settings.model_copy(update=most))


async def test_workspace_has_a_limit_of_files(database: Database, settings: Settings) -> None:
    workspace = await opened(database, settings, max_workspace_files=3)
    for name in ("a", "b", "c"):
        await workspace.result("write", path=f"/{name}", content=name)

    refused = await workspace.call("write", path="/d", content="d")
    changed = await workspace.call("write", path="/a", content="other", overwrite=True)
    moved = await workspace.call("mv", source="/b", destination="/e")
    removed = await workspace.call("rm", path="/c")

    assert isinstance(refused.error, TooLarge)
    assert "TOOLCRIB_MAX_WORKSPACE_FILES" in refused.error.message
    assert not (workspace.project / "d").exists()
    assert all(outcome.succeeded for outcome in (changed, moved, removed))


async def test_workspace_has_a_limit_of_bytes(database: Database, settings: Settings) -> None:
    workspace = await opened(database, settings, max_workspace_bytes=1_000)
    await workspace.result("write", path="/a", content="a" * 600)

    refused = await workspace.call("write", path="/a", content="b" * 600, overwrite=True)
    removed = await workspace.call("rm", path="/a")

    assert isinstance(refused.error, TooLarge)
    assert "earlier versions included" in refused.error.message
    assert removed.succeeded


async def test_existing_files_count_and_other_workspaces_are_unaffected(database: Database, settings: Settings) -> None:
    workspace = await opened(database, settings)
    for name in ("a", "b", "c"):
        await workspace.result("write", path=f"/{name}", content=name)
    bounded = settings.model_copy(update={"max_workspace_files": 3})
    heir = workspace.with_engine(bounded)
    other = replace(heir, caller=await new_caller(heir.engine))

    assert isinstance((await heir.call("write", path="/d", content="d")).error, TooLarge)
    assert (await other.call("write", path="/d", content="d")).succeeded
