"""Hashes and verifies passwords with argon2id, outside the event loop."""

import asyncio
import secrets

from pwdlib.hashers.argon2 import Argon2Hasher

# Each hash takes 64 MB and a core for about 0.1 s: many logins at once must not take all of either.
_AT_ONCE = 2


class Passwords:
    """Creates and verifies hashes. Tests pass a cheaper hasher."""

    def __init__(self, hasher: Argon2Hasher | None = None) -> None:
        self._hasher = hasher or Argon2Hasher()
        self._nobodys_hash: str | None = None
        self._turns = asyncio.Semaphore(_AT_ONCE)

    async def hash(self, password: str) -> str:
        """Hash a password."""
        async with self._turns:
            return await asyncio.to_thread(self._hasher.hash, password)

    async def matches(self, password: str, stored_hash: str | None) -> bool:
        """Return whether a password is correct. Without a stored hash it is not, but the check takes equally long."""
        async with self._turns:
            # Created at the first check, for any user: the server starts faster without it.
            if self._nobodys_hash is None:
                self._nobodys_hash = await asyncio.to_thread(self._hasher.hash, secrets.token_urlsafe())
            right = await asyncio.to_thread(self._hasher.verify, password, stored_hash or self._nobodys_hash)
        return right and stored_hash is not None
