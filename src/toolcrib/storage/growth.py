"""What is kept, how much it is, and letting go of what nothing refers to any more. As the system role only."""

from dataclasses import dataclass
from datetime import timedelta

from psycopg.errors import ForeignKeyViolation

from toolcrib.domain.ids import WorkspaceId
from toolcrib.storage.database import Database


@dataclass(frozen=True, slots=True)
class WorkspaceSize:
    """What a workspace takes up. ``stored_bytes`` is after compression, ``content_bytes`` before."""

    workspace_id: WorkspaceId
    name: str
    files: int
    deleted_files: int
    versions: int
    blobs: int
    content_bytes: int
    stored_bytes: int
    calls: int
    pending: int


@dataclass(frozen=True, slots=True)
class Collected:
    """What one round let go of."""

    versions: int
    blobs: int
    bytes: int
    trashed: int = 0


class Growth:
    """Figures and collection."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def sizes(self) -> list[WorkspaceSize]:
        """Every workspace, the largest first. Reads whole tables: for people who ask, not for calls."""
        async with self._database.system() as connection, connection.transaction():
            await connection.execute(
                "select set_config('enable_seqscan', 'on', true), set_config('enable_hashjoin', 'on', true)"
            )
            cursor = await connection.execute(
                """
                select w.id, w.name,
                       coalesce(f.live, 0), coalesce(f.gone, 0), coalesce(v.count, 0), coalesce(b.count, 0),
                       coalesce(b.content, 0)::bigint, coalesce(b.stored, 0)::bigint, coalesce(c.count, 0),
                       coalesce(p.count, 0)
                from toolcrib.workspaces w
                left join (select workspace_id, count(*) filter (where not deleted) as live,
                                  count(*) filter (where deleted) as gone
                           from toolcrib.files group by 1) f on f.workspace_id = w.id
                left join (select workspace_id, count(*) from toolcrib.versions group by 1) v on v.workspace_id = w.id
                left join (select workspace_id, count(*), sum(size) as content, sum(length(body)) as stored
                           from toolcrib.blobs group by 1) b on b.workspace_id = w.id
                left join (select workspace_id, count(*) from toolcrib.tool_calls group by 1) c on c.workspace_id = w.id
                left join (select workspace_id, count(*) from toolcrib.pending group by 1) p on p.workspace_id = w.id
                order by 8 desc, w.id
                """
            )
            return [WorkspaceSize(*row) for row in await cursor.fetchall()]

    async def forget_versions(self, *, older_than: timedelta, limit: int) -> int:
        """Lets go of old versions, but never of a file's head: what stands in the tree stays readable."""
        async with self._database.system() as connection:
            cursor = await connection.execute(
                """
                delete from toolcrib.versions v
                where (v.workspace_id, v.id) in (
                    select o.workspace_id, o.id from toolcrib.versions o
                    where o.created_at < now() - %s
                      and not exists (select from toolcrib.files f
                                      where f.workspace_id = o.workspace_id and f.id = o.file_id
                                        and f.version_id = o.id)
                      and not exists (select from toolcrib.pending p
                                      where p.workspace_id = o.workspace_id and p.file_id = o.file_id)
                      -- Without its versions nobody could bring back what lies in the trash.
                      and not exists (select from toolcrib.trash t
                                      where t.workspace_id = o.workspace_id and t.file_id = o.file_id
                                        and t.gone_at is null)
                    limit %s
                )
                """,
                (older_than, limit),
            )
            return cursor.rowcount

    async def collect_blobs(self, *, older_than: timedelta, limit: int) -> tuple[int, int]:
        """Lets go of contents that no version and no proposed change refers to; how many, and their bytes.

        Writers go on meanwhile. A version that refers to a content makes the database refuse to delete it, and a
        writer that finds its content just deleted plans again and brings it along anew.
        """
        async with self._database.system() as connection:
            try:
                cursor = await connection.execute(
                    """
                    with unused as (
                        select b.workspace_id, b.sha256 from toolcrib.blobs b
                        where b.created_at < now() - %s
                          and not exists (select from toolcrib.versions v
                                          where v.workspace_id = b.workspace_id and v.sha256 = b.sha256)
                          and not exists (select from toolcrib.proposed_changes p
                                          where p.workspace_id = b.workspace_id and p.sha256 = b.sha256)
                        limit %s for update skip locked
                    ), gone as (
                        delete from toolcrib.blobs b using unused u
                        where b.workspace_id = u.workspace_id and b.sha256 = u.sha256
                        returning length(b.body) as bytes
                    )
                    select count(*), coalesce(sum(bytes), 0)::bigint from gone
                    """,
                    (older_than, limit),
                )
            except ForeignKeyViolation:
                # Someone began to use one of them just now: the next round looks again.
                return 0, 0
            row = await cursor.fetchone()
        assert row is not None
        return int(row[0]), int(row[1])
