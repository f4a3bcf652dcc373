"""Where a client that keeps the conversation itself left off: it names no session, it repeats what was said."""

from dataclasses import dataclass

from toolcrib.domain.callers import Role
from toolcrib.domain.ids import SessionId
from toolcrib.storage.database import Database, Tenant


@dataclass(frozen=True, slots=True)
class Bookmark:
    """A session, and the number of its last event that the client was told of."""

    session_id: SessionId
    told: int


class Bookmarks:
    """Queries on bookmarks. A session has one at most."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def take(self, tenant: Tenant, digest: bytes) -> Bookmark | None:
        """The newest bookmark with this digest, which is gone then: of two that ask at once, one goes on there."""
        async with self._database.transaction(tenant, Role.MEMBER) as connection:
            cursor = await connection.execute(
                """
                delete from toolcrib.bookmarks where workspace_id = %(workspace)s and session_id = (
                    select session_id from toolcrib.bookmarks
                    where workspace_id = %(workspace)s and digest = %(digest)s
                    order by session_id desc limit 1 for update skip locked
                )
                returning session_id, told
                """,
                {"workspace": tenant.workspace_id, "digest": digest},
            )
            row = await cursor.fetchone()
        return None if row is None else Bookmark(*row)

    async def leave(self, tenant: Tenant, bookmark: Bookmark, digest: bytes) -> None:
        """Notes where a client stands in a session, instead of where it stood."""
        async with self._database.transaction(tenant, Role.MEMBER) as connection:
            await connection.execute(
                """
                insert into toolcrib.bookmarks (workspace_id, session_id, digest, told) values (%s, %s, %s, %s)
                on conflict (workspace_id, session_id) do update set digest = excluded.digest, told = excluded.told
                """,
                (tenant.workspace_id, bookmark.session_id, digest, bookmark.told),
            )
