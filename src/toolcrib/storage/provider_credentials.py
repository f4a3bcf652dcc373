"""People's own credentials for model providers and search engines, stored encrypted. A stored secret is never shown."""

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from toolcrib.core.errors import Misconfigured, NotFound, ProviderError, ProviderErrorKind
from toolcrib.core.ids import UserId
from toolcrib.core.provider_credentials import ProviderCredentials, RequestLimits
from toolcrib.storage.database import Database
from toolcrib.storage.users import ActingUser, acting

_NONCE = 12
_PURPOSE = b"toolcrib provider credentials v1"


@dataclass(frozen=True, slots=True)
class EncryptedText:
    """An encrypted text as it is stored."""

    key_id: str
    data: bytes


class Encryptor:
    """Encrypts with one key, and decrypts what it or an earlier key encrypted."""

    def __init__(self, key: str, *, previous: str | None = None) -> None:
        self._keys: Mapping[str, AESGCM] = dict(_derived(secret) for secret in (previous, key) if secret)
        self._current = _derived(key)[0]

    def encrypt(self, text: str, *, owner: str) -> EncryptedText:
        """Encrypt a text. ``owner`` is authenticated with it, and must be the same for ``decrypt``."""
        nonce = secrets.token_bytes(_NONCE)
        sealed = self._keys[self._current].encrypt(nonce, text.encode(), owner.encode())
        return EncryptedText(self._current, nonce + sealed)

    def decrypt(self, locked: EncryptedText, *, owner: str) -> str:
        """Decrypt a text."""
        key = self._keys.get(locked.key_id)
        if key is None:
            raise Misconfigured(
                f"Stored credentials were encrypted with the key {locked.key_id}, which is not configured. Set "
                "TOOLCRIB_CREDENTIALS_ENCRYPTION_KEY to it, or TOOLCRIB_CREDENTIALS_PREVIOUS_ENCRYPTION_KEY during a "
                "key rotation."
            )
        try:
            return key.decrypt(locked.data[:_NONCE], locked.data[_NONCE:], owner.encode()).decode()
        except (InvalidTag, ValueError):
            raise ProviderError(
                0,
                "The stored credentials cannot be decrypted.",
                kind=ProviderErrorKind.CREDENTIALS,
                remedy="Enter the key of the provider again.",
            ) from None

    def needs_rekey(self, locked: EncryptedText) -> bool:
        """Return whether it was encrypted with an earlier key and should be encrypted again."""
        return locked.key_id != self._current


def credentials_key_id(secret: str) -> str:
    """Return the id under which rows name the key that encrypted them."""
    return _derived(secret)[0]


def _derived(secret: str) -> tuple[str, AESGCM]:
    key = HKDF(algorithm=SHA256(), length=32, salt=None, info=_PURPOSE).derive(secret.encode())
    return sha256(key).hexdigest()[:16], AESGCM(key)


@dataclass(frozen=True, slots=True)
class ProviderCredentialsInfo:
    """What may be shown of credentials."""

    provider: str
    base_url: str | None
    created_at: datetime
    updated_at: datetime
    # The limits that hold: the person's own, and the operator's.
    limits: RequestLimits


class ProviderCredentialStore:
    """Queries on credentials. The secret is read only for the provider's client."""

    def __init__(self, database: Database, lock: Encryptor, *, limits: RequestLimits = RequestLimits()) -> None:  # noqa: B008 - frozen
        """Create the store. ``limits`` are the operator's, for every credential."""
        self._database = database
        self._lock = lock
        self.limits = limits
        self._of_environment: dict[UserId, Mapping[str, ProviderCredentials]] = {}
        self._since = datetime.now(UTC)

    def use_environment(self, user_id: UserId, credentials: Mapping[str, ProviderCredentials]) -> None:
        """Use credentials of this process's environment before the person's stored ones. They are not stored."""
        self._of_environment[user_id] = credentials

    async def store(self, person: ActingUser, provider: str, access: ProviderCredentials) -> None:
        """Store a person's credentials for a provider. Replaces earlier ones."""
        text = json.dumps({"secret": access.secret, "headers": dict(access.headers)})
        locked = self._lock.encrypt(text, owner=_owner(person.user_id, provider))
        async with acting(self._database, person) as connection:
            await connection.execute(
                """
                insert into toolcrib.provider_credentials (user_id, provider, base_url, encrypted, key_id)
                values (%s, %s, %s, %s, %s)
                on conflict (user_id, provider) do update set
                    base_url = excluded.base_url, encrypted = excluded.encrypted, key_id = excluded.key_id,
                    updated_at = now()
                """,
                (person.user_id, provider, access.base_url, locked.data, locked.key_id),
            )

    async def list(self, person: ActingUser) -> list[ProviderCredentialsInfo]:
        """Return which credentials a person has."""
        async with acting(self._database, person) as connection:
            cursor = await connection.execute(
                """
                select provider, base_url, created_at, updated_at, at_once, per_minute
                from toolcrib.provider_credentials where user_id = %s order by provider
                """,
                (person.user_id,),
            )
            stored = {
                provider: ProviderCredentialsInfo(
                    provider, base_url, created_at, updated_at, RequestLimits(*limits).within(self.limits)
                )
                for provider, base_url, created_at, updated_at, *limits in await cursor.fetchall()
            }
        of_environment = {
            provider: ProviderCredentialsInfo(provider, credentials.base_url, self._since, self._since, self.limits)
            for provider, credentials in self._of_environment.get(person.user_id, {}).items()
        }
        return sorted((stored | of_environment).values(), key=lambda info: info.provider)

    async def set_limits(self, person: ActingUser, provider: str, limits: RequestLimits) -> None:
        """Limit the model requests with a person's stored credentials. Runs that wait for room get it at once.

        Raises:
            NotFound: There are none, or they are those of the environment.
        """
        if provider in self._of_environment.get(person.user_id, {}):
            raise NotFound(
                f"The credentials for {provider!r} come from the environment. Limit them with "
                "TOOLCRIB_MODEL_REQUESTS_AT_ONCE and TOOLCRIB_MODEL_REQUESTS_PER_MINUTE."
            )
        async with acting(self._database, person) as connection:
            cursor = await connection.execute(
                """
                update toolcrib.provider_credentials set at_once = %s, per_minute = %s, updated_at = now()
                where user_id = %s and provider = %s
                """,
                (limits.at_once, limits.per_minute, person.user_id, provider),
            )
            if cursor.rowcount == 0:
                raise NotFound(f"You have no credentials for {provider!r}.")
        holding = limits.within(self.limits)
        async with self._database.as_system() as connection:
            await connection.execute(
                "update toolcrib.model_lanes set at_once = %s, per_minute = %s where user_id = %s and provider = %s",
                (holding.at_once, holding.per_minute, person.user_id, provider),
            )

    async def remove(self, person: ActingUser, provider: str) -> None:
        """Delete a person's credentials for a provider."""
        async with acting(self._database, person) as connection:
            cursor = await connection.execute(
                "delete from toolcrib.provider_credentials where user_id = %s and provider = %s",
                (person.user_id, provider),
            )
            if cursor.rowcount == 0:
                raise NotFound(f"You have no credentials for {provider!r}.")

    async def has(self, user_id: UserId, provider: str) -> bool:
        """Return whether a person has credentials for a provider, with the system role."""
        if provider in self._of_environment.get(user_id, {}):
            return True
        async with self._database.as_system() as connection:
            row = await connection.fetch_row(
                "select from toolcrib.provider_credentials where user_id = %s and provider = %s", (user_id, provider)
            )
        return row is not None

    async def of(self, user_id: UserId, provider: str) -> ProviderCredentials | None:
        """Return a person's decrypted credentials for a provider, with the system role, for their run."""
        if (given := self._of_environment.get(user_id, {}).get(provider)) is not None:
            return replace(given, limits=self.limits)
        async with self._database.as_system() as connection:
            row = await connection.fetch_row(
                """
                select base_url, encrypted, key_id, at_once, per_minute from toolcrib.provider_credentials
                where user_id = %s and provider = %s
                """,
                (user_id, provider),
            )
        if row is None:
            return None
        base_url, encrypted, key_id, at_once, per_minute = row
        found = json.loads(self._lock.decrypt(EncryptedText(key_id, bytes(encrypted)), owner=_owner(user_id, provider)))
        limits = RequestLimits(at_once, per_minute).within(self.limits)
        return ProviderCredentials(found["secret"], base_url, found["headers"], limits)


def _owner(user_id: UserId, provider: str) -> str:
    return f"{user_id}/{provider}"
