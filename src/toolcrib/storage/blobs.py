"""Contents, stored once per workspace and hash, compressed where it pays."""

import zlib
from collections.abc import Iterable
from hashlib import sha256

from toolcrib.domain.errors import NotFound
from toolcrib.storage.database import Connection, Database, Tenant

# Below this, zlib's header eats what it saves.
_WORTH_COMPRESSING = 512


def digest(body: bytes) -> bytes:
    return sha256(body).digest()


def packed(body: bytes) -> tuple[str, bytes]:
    """The encoding and the bytes to store."""
    if len(body) >= _WORTH_COMPRESSING:
        small = zlib.compress(body, 1)
        if len(small) < len(body) * 0.9:
            return "zlib", small
    return "raw", body


def unpacked(encoding: str, body: bytes) -> bytes:
    return zlib.decompress(body) if encoding == "zlib" else bytes(body)


class Blobs:
    """Reading contents back. They are written with the change set that brings them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def get(self, tenant: Tenant, sha256: bytes) -> bytes:
        async with self._database.transaction(tenant) as connection:
            found = await fetch(connection, tenant, [sha256])
        if sha256 not in found:
            raise NotFound(f"Content {sha256.hex()} is not stored in this workspace.")
        return found[sha256]


async def fetch(connection: Connection, tenant: Tenant, hashes: Iterable[bytes]) -> dict[bytes, bytes]:
    """The contents of the given hashes, within a transaction that has its tenant."""
    cursor = connection.cursor(binary=True)
    await cursor.execute(
        "select sha256, encoding, body from toolcrib.blobs where workspace_id = %s and sha256 = any (%s)",
        (tenant.workspace_id, list(hashes)),
    )
    return {bytes(key): unpacked(encoding, body) for key, encoding, body in await cursor.fetchall()}
