"""Hashing and checking passwords, with argon2id, away from the event loop."""

import asyncio
import secrets

from pwdlib.hashers.argon2 import Argon2Hasher

# Each hashing takes 64 MB and a core for about 0.1 s: a crowd of logins must not take all of either.
_AT_ONCE = 2


class Passwords:
    """Makes and checks hashes. Tests give a cheaper hasher."""

    def __init__(self, hasher: Argon2Hasher | None = None) -> None:
        self._hasher = hasher or Argon2Hasher()
        self._nobodys_hash: str | None = None
        self._turns = asyncio.Semaphore(_AT_ONCE)

    async def hash(self, password: str) -> str:
        async with self._turns:
            return await asyncio.to_thread(self._hasher.hash, password)

    async def matches(self, password: str, stored_hash: str | None) -> bool:
        """Whether a password is right. Without a hash it is wrong, and takes as long to be found so."""
        async with self._turns:
            # At the first question, whoever is asked about: a server starts sooner without it.
            if self._nobodys_hash is None:
                self._nobodys_hash = await asyncio.to_thread(self._hasher.hash, secrets.token_urlsafe())
            right = await asyncio.to_thread(self._hasher.verify, password, stored_hash or self._nobodys_hash)
        return right and stored_hash is not None
