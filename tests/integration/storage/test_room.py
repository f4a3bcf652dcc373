"""The limits of a workspace's size: growth beyond them is rejected, and shrinking always works."""

from base64 import b64encode
from dataclasses import replace
from random import randbytes

from tests.integration.conftest import WorkspaceFixture, new_caller, new_workspace
from toolcrib.core.errors import BadArguments, TooLarge
from toolcrib.settings import Settings
from toolcrib.storage.database import Database


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
    assert "earlier versions and attachments included" in refused.error.message
    assert removed.succeeded


async def test_attachments_count_for_the_bytes_of_a_workspace(database: Database, settings: Settings) -> None:
    bounded = settings.model_copy(update={"max_workspace_bytes": 20_000})
    workspace = await new_workspace(database, bounded)
    session = await workspace.stores.sessions.create(workspace.tenant)
    person = replace(workspace.caller, session_id=session.id)
    picture = {"name": "shot.png", "content": b64encode(b"\x89PNG\r\n\x1a\n" + randbytes(9_000)).decode()}

    first = await workspace.call("attach", person, **picture)
    second = await workspace.call("attach", person, **picture)
    heir = workspace.with_engine(bounded)
    written = await heir.call("write", path="/a", content=randbytes(5_000).hex())

    assert first.succeeded, first.error
    assert isinstance(second.error, TooLarge)
    assert isinstance(written.error, TooLarge), "another process measures what the workspace has, attachments included"
    assert (await heir.call("write", path="/a", content="a")).succeeded


async def test_attachments_of_a_deleted_session_do_not_count(database: Database, settings: Settings) -> None:
    bounded = settings.model_copy(update={"max_workspace_bytes": 20_000})
    workspace = await new_workspace(database, bounded)
    session = await workspace.stores.sessions.create(workspace.tenant)
    person = replace(workspace.caller, session_id=session.id)
    picture = {"name": "shot.png", "content": b64encode(b"\x89PNG\r\n\x1a\n" + randbytes(9_000)).decode()}
    assert (await workspace.call("attach", person, **picture)).succeeded
    text = randbytes(5_000).hex()
    full = await workspace.call("write", path="/a", content=text)

    await workspace.stores.sessions.delete(workspace.tenant, session.id)
    written = await workspace.with_engine(bounded).call("write", path="/a", content=text)

    assert isinstance(full.error, TooLarge)
    assert "Delete files or sessions" in full.error.message
    assert written.succeeded, written.error


async def test_nothing_of_an_attachment_is_stored_when_its_session_is_deleted(
    database: Database, settings: Settings
) -> None:
    workspace = await opened(database, settings)
    for _ in range(3):
        session = await workspace.stores.sessions.create(workspace.tenant)
        person = replace(workspace.caller, session_id=session.id)
        picture = {"name": "shot.png", "content": b64encode(b"\x89PNG\r\n\x1a\n" + randbytes(9_000)).decode()}
        assert (await workspace.call("attach", person, **picture)).succeeded
        assert await stored_bytes(database, workspace) > 9_000

        await workspace.stores.sessions.delete(workspace.tenant, session.id)

        assert await stored_bytes(database, workspace) < 3 * 1_000, "only that it was called remains"


async def stored_bytes(database: Database, workspace: WorkspaceFixture) -> int:
    """The bytes that the calls of a workspace take up."""
    async with database.transaction(workspace.tenant) as connection:
        (size,) = await connection.returned_row(
            "select coalesce(sum(pg_column_size(c.*)), 0)::bigint from toolcrib.tool_calls c where workspace_id = %s",
            (workspace.tenant.workspace_id,),
        )
    return int(size)


async def test_attachment_without_a_session_is_rejected_and_does_not_count(
    database: Database, settings: Settings
) -> None:
    workspace = await opened(database, settings, max_workspace_bytes=20_000)
    content = b64encode(b"\x89PNG\r\n\x1a\n" + randbytes(9_000)).decode()

    attached = await workspace.call("attach", name="shot.png", content=content)
    written = await workspace.call("write", path="/a", content=randbytes(9_000).hex())

    assert isinstance(attached.error, BadArguments)
    assert "no session" in attached.error.fields["session_id"]
    assert written.succeeded, written.error


async def test_existing_files_count_and_other_workspaces_are_unaffected(database: Database, settings: Settings) -> None:
    workspace = await opened(database, settings)
    for name in ("a", "b", "c"):
        await workspace.result("write", path=f"/{name}", content=name)
    bounded = settings.model_copy(update={"max_workspace_files": 3})
    heir = workspace.with_engine(bounded)
    other = replace(heir, caller=await new_caller(heir.engine))

    assert isinstance((await heir.call("write", path="/d", content="d")).error, TooLarge)
    assert (await other.call("write", path="/d", content="d")).succeeded
