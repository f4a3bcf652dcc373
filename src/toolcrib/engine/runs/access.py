"""By whose leave a model is used: the credentials of whoever sent the message, or the operator's own."""

from collections.abc import Mapping

from toolcrib.domain.errors import NotFound
from toolcrib.domain.ids import UserId
from toolcrib.providers.provider import Credentials
from toolcrib.storage.access import Access

# Local servers ask for none.
_WITHOUT = frozenset({"ollama"})


class ModelAccess:
    """Finds credentials. What the operator configured for everyone counts where a person has stored none."""

    def __init__(self, rows: Access, *, shared: Mapping[str, Credentials] | None = None) -> None:
        self._rows = rows
        self._shared = dict(shared or {})

    async def of(self, user_id: UserId, provider: str) -> Credentials:
        """The credentials to use; NotFound says what to do if there are none."""
        stored = await self._rows.of(user_id, provider)
        if stored is not None:
            return Credentials(stored.secret, stored.base_url, stored.headers)
        if provider in self._shared:
            return self._shared[provider]
        if provider in _WITHOUT:
            return Credentials()
        raise NotFound(
            f"You have stored no credentials for {provider!r}. "
            f"Store them with PUT /api/v1/credentials/{provider}, then send the message again."
        )
