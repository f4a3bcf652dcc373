"""Proposed change sets: what a call would change, stored until a person decides. Any node can commit one later."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final
from uuid import UUID

from psycopg import AsyncCursor

from toolcrib.core.change_sets import Author, ChangeSet, FileChange
from toolcrib.core.errors import NotFound
from toolcrib.core.files import ContentKind, EntryKind, EntryState, FileType
from toolcrib.core.ids import ChangeSetId
from toolcrib.core.json_text import json_text
from toolcrib.core.paths import WorkspacePath, path_from_row
from toolcrib.runtime.disk_threads import off_loop
from toolcrib.storage.blobs import fetch, packed
from toolcrib.storage.database import Connection, Tenant

# Rows that are parsed before others have their turn.
_AT_ONCE: Final = 500


async def save_proposal(connection: Connection, tenant: Tenant, change_set: ChangeSet) -> None:
    """Store the change set and its contents, in the transaction of the approval."""
    await connection.execute(
        """
        insert into toolcrib.change_sets
            (workspace_id, id, state, author_kind, user_id, agent_id, session_id, run_id, call_id)
        values (%(workspace_id)s, %(id)s, 'proposed', %(kind)s, %(user_id)s, %(agent_id)s, %(session_id)s, %(run_id)s,
                %(call_id)s)
        """,
        {**asdict(change_set.author), "workspace_id": tenant.workspace_id, "id": change_set.id},
    )
    await _insert_changes(connection, tenant, change_set)


async def replace_proposal(connection: Connection, tenant: Tenant, change_set: ChangeSet) -> None:
    """Store other changes for a proposed change set, in the transaction of the decision.

    Raises:
        NotFound: It is no longer proposed.
    """
    parameters = (tenant.workspace_id, change_set.id)
    found = await connection.fetch_row(
        "select from toolcrib.change_sets where workspace_id = %s and id = %s and state = 'proposed'", parameters
    )
    if found is None:
        raise NotFound(f"Change set {change_set.id} is no longer proposed.")
    await connection.execute(
        "delete from toolcrib.proposed_changes where workspace_id = %s and change_set_id = %s", parameters
    )
    await _insert_changes(connection, tenant, change_set)


async def _insert_changes(connection: Connection, tenant: Tenant, change_set: ChangeSet) -> None:
    workspace = tenant.workspace_id
    bodies = {
        change.after.sha256: change.body
        for change in change_set.changes
        if change.body is not None and change.after is not None and change.after.sha256 is not None
    }

    def blob_rows() -> list[tuple[Any, ...]]:
        return [(workspace, sha256, len(body), *packed(body)) for sha256, body in bodies.items()]

    def change_rows() -> list[tuple[Any, ...]]:
        return [
            (
                workspace,
                change_set.id,
                ordinal,
                change.file_id,
                change.version_id,
                change.type,
                change.base,
                _json(change.before),
                _json(change.after),
                # Only contents that the change set brings; versions keep the others.
                change.after.sha256 if change.after is not None and change.body is not None else None,
            )
            for ordinal, change in enumerate(change_set.changes)
        ]

    async with connection.cursor() as cursor:
        await cursor.executemany(
            """
            insert into toolcrib.blobs (workspace_id, sha256, size, encoding, body) values (%s, %s, %s, %s, %s)
            on conflict do nothing
            """,
            await off_loop(bodies, blob_rows),
        )
        await cursor.executemany(
            """
            insert into toolcrib.proposed_changes
                (workspace_id, change_set_id, ordinal, file_id, version_id, type, base_version_id, before, after,
                 sha256)
            values (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
            """,
            await off_loop(change_set.changes, change_rows),
        )


async def load_proposal(connection: Connection, tenant: Tenant, change_set_id: ChangeSetId) -> ChangeSet:
    """Return the change set as it was proposed, including contents."""
    author = await connection.fetch_one(
        Author,
        """
        select author_kind as kind, user_id, agent_id, session_id, run_id, call_id from toolcrib.change_sets
        where workspace_id = %s and id = %s and state = 'proposed'
        """,
        (tenant.workspace_id, change_set_id),
    )
    if author is None:
        raise NotFound(f"Change set {change_set_id} is no longer proposed.")
    cursor = await connection.execute(
        """
        select file_id, version_id, type, base_version_id, before, after, sha256 from toolcrib.proposed_changes
        where workspace_id = %s and change_set_id = %s order by ordinal
        """,
        (tenant.workspace_id, change_set_id),
    )
    return ChangeSet(author, await _changes(connection, tenant, cursor), change_set_id)


async def load_proposed_changes(
    connection: Connection, tenant: Tenant, change_set_id: ChangeSetId, *, first: int, limit: int
) -> tuple[tuple[FileChange, ...], int]:
    """Return some changes of a proposal in their order, including contents, and how many it has."""
    parameters = (tenant.workspace_id, change_set_id)
    counted = await connection.fetch_row(
        """
        select count(*) from toolcrib.proposed_changes p
        join toolcrib.change_sets c on c.workspace_id = p.workspace_id and c.id = p.change_set_id
        where p.workspace_id = %s and p.change_set_id = %s and c.state = 'proposed'
        """,
        parameters,
    )
    cursor = await connection.execute(
        """
        select file_id, version_id, type, base_version_id, before, after, sha256 from toolcrib.proposed_changes
        where workspace_id = %s and change_set_id = %s and ordinal >= %s order by ordinal limit %s
        """,
        (*parameters, first, limit),
    )
    return await _changes(connection, tenant, cursor), counted[0] if counted else 0


async def _changes(connection: Connection, tenant: Tenant, cursor: AsyncCursor[Any]) -> tuple[FileChange, ...]:
    rows = list[tuple[Any, ...]]()
    while some := await cursor.fetchmany(_AT_ONCE):
        rows += some
        # The rows are here already and are only parsed, so that nothing waits between them.
        await asyncio.sleep(0)
    bodies = await fetch(connection, tenant, {row[-1] for row in rows if row[-1] is not None})
    return await off_loop(rows, _changes_of, rows, bodies)


def _changes_of(rows: Sequence[tuple[Any, ...]], bodies: Mapping[bytes, bytes]) -> tuple[FileChange, ...]:
    return tuple(
        FileChange(
            file_id,
            version_id,
            FileType(type_),
            base,
            _state(before),
            _state(after),
            None if sha256 is None else bodies[sha256],
        )
        for file_id, version_id, type_, base, before, after, sha256 in rows
    )


async def drop_proposal(connection: Connection, tenant: Tenant, change_set_id: ChangeSetId) -> None:
    """Delete a proposal that will not be committed. Contents of its own are garbage-collected later."""
    parameters = (tenant.workspace_id, change_set_id)
    await connection.execute(
        "delete from toolcrib.proposed_changes where workspace_id = %s and change_set_id = %s", parameters
    )
    await connection.execute(
        """
        update toolcrib.change_sets set state = 'dropped' where workspace_id = %s and id = %s and state = 'proposed'
        """,
        parameters,
    )


async def changed_since_proposal(
    connection: Connection, tenant: Tenant, change_set_id: ChangeSetId
) -> list[tuple[WorkspacePath, str]]:
    """Return the paths that changed since the proposal, and who changed them."""
    cursor = await connection.execute(
        """
        select coalesce(p.before, p.after) ->> 'tree', coalesce(p.before, p.after) ->> 'path',
               coalesce(a.name, u.full_name, u.email, c.author_kind, 'someone')
        from toolcrib.proposed_changes p
        left join lateral (select f.* from toolcrib.files f
                           where f.workspace_id = p.workspace_id and f.id = p.file_id limit 1) own on true
        left join lateral (select f.* from toolcrib.files f
                           where f.workspace_id = p.workspace_id and f.mount = p.after ->> 'tree'
                             and f.path = p.after ->> 'path' and not f.deleted limit 1) there on true
        left join lateral (select v.change_set_id from toolcrib.versions v
                           where v.workspace_id = p.workspace_id
                             and v.id = coalesce(own.version_id, there.version_id) limit 1) v on true
        left join lateral (select s.* from toolcrib.change_sets s
                           where s.workspace_id = p.workspace_id and s.id = v.change_set_id limit 1) c on true
        left join lateral (select g.name from toolcrib.agents g
                           where g.workspace_id = p.workspace_id and g.id = c.agent_id limit 1) a on true
        left join lateral (select m.full_name, m.email from toolcrib.users m where m.id = c.user_id limit 1) u on true
        where p.workspace_id = %s and p.change_set_id = %s
          and (own.version_id is distinct from p.base_version_id
               -- The target of a new or moved file must be free, unless this change set frees it. A new folder that is
               -- there by now is no change: the commit leaves it out.
               or (there.id is not null and there.id <> p.file_id
                   and not (p.before is null and p.after ->> 'kind' = 'folder' and there.kind = 'folder')
                   and not exists (select from toolcrib.proposed_changes o
                                   where o.workspace_id = p.workspace_id and o.change_set_id = p.change_set_id
                                     and o.file_id = there.id)))
        order by p.ordinal
        """,
        (tenant.workspace_id, change_set_id),
    )
    return [(path_from_row(tree, path), who) for tree, path, who in await cursor.fetchall()]


def _json(state: EntryState | None) -> str | None:
    if state is None:
        return None
    return json_text(
        {
            "tree": state.path.mount_key,
            "path": state.path.path,
            "kind": state.kind,
            "mode": state.mode,
            "sha256": state.sha256.hex() if state.sha256 else None,
            "size": state.size,
            "lines": state.line_count,
            "content": state.content_kind,
            "link_target": state.link_target,
            "trash_id": state.trash_id,
            "inode": state.inode,
            "unkept_sha256": state.unkept_sha256.hex() if state.unkept_sha256 else None,
        }
    )


def _state(row: Mapping[str, Any] | None) -> EntryState | None:
    if row is None:
        return None
    return EntryState(
        path_from_row(row["tree"], row["path"]),
        EntryKind(row["kind"]),
        row["mode"],
        bytes.fromhex(row["sha256"]) if row["sha256"] else None,
        row["size"],
        row["lines"],
        ContentKind(row["content"]),
        row["link_target"],
        UUID(row["trash_id"]) if row["trash_id"] else None,
        row["inode"],
        bytes.fromhex(row["unkept_sha256"]) if row["unkept_sha256"] else None,
    )
