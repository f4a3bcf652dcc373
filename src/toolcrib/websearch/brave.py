"""The Brave Search API, with the operator's key or a person's own. The key is sent to its host only and never shown."""

from typing import Final

from pydantic import SecretStr
from yarl import URL

from toolcrib.core.errors import BadArguments, Misconfigured
from toolcrib.core.ids import UserId
from toolcrib.storage.provider_credentials import ProviderCredentialStore
from toolcrib.websearch.search_engine import EngineFailed, EngineResponse, SearchResult, ask, is_loopback, pages, parsed
from toolcrib.websearch.text_sanitizer import to_plain_text

ADDRESS = "https://api.search.brave.com/res/v1/web/search"
# Limits of its documentation.
_MOST_RESULTS = 20
_MOST_WORDS = 50

# The engines for which a person may store a key, as credentials name them.
ENGINES: Final = ("brave",)
_TOOLS: Final = frozenset({"web_search"})
_CHECK_SECONDS: Final = 10.0


class Brave:
    """The API at ``url``, which differs from Brave's own only behind a relay. ``source`` names the key's origin."""

    name = "brave"

    def __init__(self, key: SecretStr, *, url: str = ADDRESS, source: str = "TOOLCRIB_BRAVE_API_KEY") -> None:
        self._source = source
        self._key = SecretStr(key.get_secret_value().strip())
        self._url = _secured(url)
        if not is_key(self._key.get_secret_value()):
            raise Misconfigured(f"{source} is not a key: it is empty, or has spaces or special characters.")

    @property
    def host(self) -> str:
        return self._url.host or ""

    async def search(self, query: str, *, most: int, seconds: float) -> list[SearchResult]:
        if len(query.split()) > _MOST_WORDS:
            raise EngineFailed(f"the limit is {_MOST_WORDS} words; shorten the query")
        params = {
            "q": query,
            "count": str(min(most, _MOST_RESULTS)),
            "text_decorations": "false",
            "result_filter": "web",
        }
        headers = {"X-Subscription-Token": self._key.get_secret_value()}
        answer = await ask(self._url, params=params, headers=headers, seconds=seconds)
        if not answer.ok:
            # A server may repeat what it received.
            raise EngineFailed(self._refusal(answer).replace(self._key.get_secret_value(), "[key]"))
        body = answer.json_object()
        if body.get("type") == "search" and body.get("web") is None:
            # Brave's way of saying that it found nothing.
            return []
        web = body.get("web")
        results = web.get("results") if isinstance(web, dict) else None
        return pages(results, title="title", address="url", snippet="description", most=most)

    def _refusal(self, answer: EngineResponse) -> str:
        code, detail = _error(answer)
        if answer.status in (401, 403) or code == "SUBSCRIPTION_TOKEN_INVALID":
            return f"it rejected the key (HTTP {answer.status}); check {self._source} and its plan"
        if answer.status == 429:
            return "its rate limit is reached; wait, or use a larger plan"
        details = ": ".join(filter(None, (code, detail)))
        return f"{answer.refusal} ({details})" if details else answer.refusal


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

    async def has_key(self, user_id: UserId) -> bool:
        """Whether this person stored a key."""
        return await self._rows.has(user_id, Brave.name)

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


def is_key(value: str) -> bool:
    """Return whether the value can be sent as a key."""
    return bool(value) and value.isascii() and value.isprintable() and " " not in value


def _secured(url: str) -> URL:
    """Return the URL.

    Raises:
        Misconfigured: The key would be sent unencrypted to another machine.
    """
    address = parsed(url)
    if address is None or address.user or address.password or not (address.scheme == "https" or is_loopback(address)):
        raise Misconfigured(
            f"TOOLCRIB_BRAVE_URL must begin with https://, since the key is sent there; as in {ADDRESS}"
        )
    return address


def _error(answer: EngineResponse) -> tuple[str, str]:
    """Return code and detail of ``{"type": "ErrorResponse", "error": {"code": …, "detail": …}}``."""
    try:
        error = answer.json_object().get("error")
    except EngineFailed:
        return "", ""
    if not isinstance(error, dict):
        return "", ""
    return to_plain_text(error.get("code"), most=80), to_plain_text(error.get("detail"), most=300)
