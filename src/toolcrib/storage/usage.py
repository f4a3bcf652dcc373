"""What one workspace takes up, told to its members. Figures of all workspaces are in ``growth``."""

from dataclasses import dataclass

from toolcrib.storage.database import Database, Tenant

# Counting a workspace of millions must not keep a connection for minutes.
_SECONDS = 5


@dataclass(frozen=True, slots=True)
class WorkspaceUsage:
    """``stored_bytes`` is after compression, ``content_bytes`` before; ``trash_bytes`` is what can be brought back."""

    files: int
    deleted_files: int
    versions: int
    contents: int
    content_bytes: int
    stored_bytes: int
    trash_entries: int
    trash_bytes: int
    sessions: int
    calls: int
    pending: int


class Usage:
    """Counts a workspace's rows: for people who ask, not for calls."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def of(self, tenant: Tenant) -> WorkspaceUsage:
        async with self._database.transaction(tenant) as connection:
            await connection.execute("select set_config('statement_timeout', %s, true)", (f"{_SECONDS}s",))
            cursor = await connection.execute(
                """
                select f.live, f.gone, v.count, b.count, b.content, b.stored, t.count, t.bytes, s.count, c.count,
                       p.count
                from (select count(*) filter (where not deleted) as live, count(*) filter (where deleted) as gone
                      from toolcrib.files where workspace_id = %(workspace)s) f,
                     (select count(*) from toolcrib.versions where workspace_id = %(workspace)s) v,
                     (select count(*), coalesce(sum(size), 0)::bigint as content,
                             coalesce(sum(length(body)), 0)::bigint as stored
                      from toolcrib.blobs where workspace_id = %(workspace)s) b,
                     (select count(*), coalesce(sum(size), 0)::bigint as bytes
                      from toolcrib.trash
                      where workspace_id = %(workspace)s and gone_at is null and expires_at > now()) t,
                     (select count(*) from toolcrib.sessions where workspace_id = %(workspace)s) s,
                     (select count(*) from toolcrib.tool_calls where workspace_id = %(workspace)s) c,
                     (select count(*) from toolcrib.pending where workspace_id = %(workspace)s) p
                """,
                {"workspace": tenant.workspace_id},
            )
            row = await cursor.fetchone()
        assert row is not None
        return WorkspaceUsage(*row)
