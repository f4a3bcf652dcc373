"""People's own access to model providers, as rows. A secret that was stored is never shown again."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from toolcrib.domain.errors import NotFound
from toolcrib.domain.ids import UserId
from toolcrib.storage.accounts import Person, acting
from toolcrib.storage.credentials import Lock, Locked
from toolcrib.storage.database import Database


@dataclass(frozen=True, slots=True)
class StoredAccess:
    """Access to a provider. Neither secret nor headers appear in a representation."""

    secret: str = field(default="", repr=False)
    base_url: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class AccessInfo:
    """What may be shown of it."""

    provider: str
    base_url: str | None
    created_at: datetime
    updated_at: datetime


class Access:
    """Queries on credentials. The secret leaves only for the provider's own client."""

    def __init__(self, database: Database, lock: Lock) -> None:
        self._database = database
        self._lock = lock

    async def store(self, person: Person, provider: str, access: StoredAccess) -> None:
        """Keeps a person's access to a provider, in place of an earlier one."""
        text = json.dumps({"secret": access.secret, "headers": dict(access.headers)})
        locked = self._lock.lock(text, owner=_owner(person.user_id, provider))
        async with acting(self._database, person) as connection:
            await connection.execute(
                """
                insert into toolcrib.credentials (user_id, provider, base_url, sealed, key_id)
                values (%s, %s, %s, %s, %s)
                on conflict (user_id, provider) do update set
                    base_url = excluded.base_url, sealed = excluded.sealed, key_id = excluded.key_id, updated_at = now()
                """,
                (person.user_id, provider, access.base_url, locked.data, locked.key_id),
            )

    async def list(self, person: Person) -> list[AccessInfo]:
        async with acting(self._database, person) as connection:
            cursor = await connection.execute(
                """
                select provider, base_url, created_at, updated_at from toolcrib.credentials
                where user_id = %s order by provider
                """,
                (person.user_id,),
            )
            return [AccessInfo(*row) for row in await cursor.fetchall()]

    async def remove(self, person: Person, provider: str) -> None:
        async with acting(self._database, person) as connection:
            cursor = await connection.execute(
                "delete from toolcrib.credentials where user_id = %s and provider = %s", (person.user_id, provider)
            )
            if cursor.rowcount == 0:
                raise NotFound(f"You have stored no credentials for {provider!r}.")

    async def of(self, user_id: UserId, provider: str) -> StoredAccess | None:
        """A person's access to a provider, opened; as the system, for a run of theirs."""
        async with self._database.system() as connection:
            cursor = await connection.execute(
                "select base_url, sealed, key_id from toolcrib.credentials where user_id = %s and provider = %s",
                (user_id, provider),
            )
            row = await cursor.fetchone()
        if row is None:
            return None
        base_url, sealed, key_id = row
        found = json.loads(self._lock.unlock(Locked(key_id, bytes(sealed)), owner=_owner(user_id, provider)))
        return StoredAccess(found["secret"], base_url, found["headers"])


def _owner(user_id: UserId, provider: str) -> str:
    return f"{user_id}/{provider}"
