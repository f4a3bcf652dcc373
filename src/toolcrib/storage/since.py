"""What happened in a workspace since a moment: the moment as the database knows it, and who changed what after it."""

from collections.abc import Sequence

from toolcrib.domain.ids import VersionId
from toolcrib.domain.places import Place, place_in
from toolcrib.storage.database import Database, Tenant
from toolcrib.storage.files import places_json


class Since:
    """Queries on what came after a snapshot."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def now(self, tenant: Tenant) -> str:
        """This moment: which transactions had ended in it. A version that one of the others wrote came later."""
        async with self._database.connection(tenant) as connection:
            cursor = await connection.execute("select pg_current_snapshot()::text", prepare=True)
            row = await cursor.fetchone()
        assert row is not None
        snapshot: str = row[0]
        return snapshot

    async def changed(self, tenant: Tenant, snapshot: str, places: Sequence[Place]) -> dict[Place, VersionId]:
        """Of these places, those that a call changed since, with the version that it left; deletions too."""
        async with self._database.connection(tenant) as connection:
            cursor = connection.cursor(binary=True)
            await cursor.execute(
                "select * from toolcrib.changed_since(%s, %s, %s, %s, %s::pg_snapshot, %s)",
                (*tenant.parameters, snapshot, places_json(places)),
                prepare=True,
            )
            rows = await cursor.fetchall()
        return {place_in(tree, path): VersionId(version_id) for tree, path, version_id in rows}
