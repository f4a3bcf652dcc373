"""Secrets that we hand out: refresh tokens, API keys and tickets. They are shown once and kept as hashes."""

import secrets
from hashlib import sha256

REFRESH_PREFIX = "tcr_"
KEY_PREFIX = "tck_"
TICKET_PREFIX = "tct_"


def new_secret(prefix: str) -> str:
    return prefix + secrets.token_urlsafe(32)


def hashed(secret: str) -> bytes:
    """A fast hash is enough here: nobody can guess at 32 random bytes, as they can at a password."""
    return sha256(secret.encode()).digest()
