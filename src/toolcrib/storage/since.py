"""What happened in a workspace since a moment: the moment as the database knows it, and who changed what after it."""

from collections.abc import Sequence
from dataclasses import dataclass

from toolcrib.domain.ids import VersionId
from toolcrib.domain.places import Mount, Place, place_in, root_of
from toolcrib.storage.database import Database, Tenant
from toolcrib.storage.files import places_json


@dataclass(frozen=True, slots=True)
class Moment:
    """Which transactions had ended, and whether all that they changed is known to be on disk."""

    snapshot: str
    any_pending: bool


class Since:
    """Queries on what came after a snapshot."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def now(self, tenant: Tenant) -> Moment:
        """This moment. A version that was written by a transaction which had not ended in it came later."""
        async with self._database.connection(tenant) as connection:
            cursor = await connection.execute(
                """
                select pg_current_snapshot()::text,
                       (select bool_or(any_pending) from toolcrib.look(%s, %s, %s, %s, %s))
                """,
                (*tenant.parameters, places_json([root_of(Mount.PROJECT)])),
                prepare=True,
            )
            row = await cursor.fetchone()
        assert row is not None
        return Moment(*row)

    async def changed(self, tenant: Tenant, moment: Moment, places: Sequence[Place]) -> dict[Place, VersionId]:
        """Of these places, those that a call changed since, with the version that it left; deletions too."""
        async with self._database.connection(tenant) as connection:
            cursor = connection.cursor(binary=True)
            await cursor.execute(
                "select * from toolcrib.changed_since(%s, %s, %s, %s, %s::pg_snapshot, %s)",
                (*tenant.parameters, moment.snapshot, places_json(places)),
                prepare=True,
            )
            rows = await cursor.fetchall()
        return {place_in(tree, path): VersionId(version_id) for tree, path, version_id in rows}
