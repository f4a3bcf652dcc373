"""Search-engine keys that people store for themselves. Their searches use these instead of the operator's key."""

from collections.abc import Collection
from typing import Final

from pydantic import SecretStr

from toolcrib.core.errors import BadArguments
from toolcrib.core.ids import UserId
from toolcrib.storage.provider_credentials import ProviderCredentialStore
from toolcrib.websearch.brave import Brave, is_key
from toolcrib.websearch.search_engine import EngineFailed

# The engines for which a person may store a key, as credentials name them.
ENGINES: Final = ("brave",)
_TOOLS: Final = frozenset({"web_search"})
_CHECK_SECONDS: Final = 10.0


class SearchKeys:
    """Loads keys and creates engines with them. Only the operator sets ``url``: a key is sent nowhere else."""

    def __init__(self, rows: ProviderCredentialStore, *, url: str) -> None:
        self._rows = rows
        self._url = url

    @property
    def host(self) -> str:
        """The host that a search with such a key contacts."""
        return self._engine("none").host

    async def engine_of(self, user_id: UserId) -> Brave | None:
        """Return the engine that this person's searches use first, or None if they stored no key."""
        stored = await self._rows.of(user_id, Brave.name)
        return None if stored is None else self._engine(stored.secret)

    async def tools_of(self, user_id: UserId) -> Collection[str]:
        """Return the tools that work for this person because of their own key."""
        return _TOOLS if await self._rows.has(user_id, Brave.name) else ()

    async def check(self, secret: str, *, ask: bool) -> None:
        """Raise BadArguments if the key is malformed or, with ``ask``, if the engine rejects it."""
        if not is_key(secret.strip()):
            raise BadArguments({"secret": "Expected a key without spaces or special characters"})
        if not ask:
            return
        try:
            await self._engine(secret).search("toolcrib", most=1, seconds=_CHECK_SECONDS)
        except EngineFailed as failure:
            raise BadArguments({"secret": f"The search engine rejected the key: {failure}"}) from None

    def _engine(self, secret: str) -> Brave:
        return Brave(SecretStr(secret), url=self._url, source="the key that you stored")
