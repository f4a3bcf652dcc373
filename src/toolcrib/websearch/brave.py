"""The Brave Search API, with the operator's key or a person's own. The key is sent to its host only and never shown."""

import httpx2
from pydantic import SecretStr

from toolcrib.core.errors import Misconfigured
from toolcrib.websearch.engine_http import EngineResponse, ask, is_loopback, parsed
from toolcrib.websearch.search_engine import EngineFailed, SearchResult
from toolcrib.websearch.text_sanitizer import pages, to_plain_text

ADDRESS = "https://api.search.brave.com/res/v1/web/search"
# Limits of its documentation.
_MOST_RESULTS = 20
_MOST_WORDS = 50


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
        return self._url.host

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


def is_key(value: str) -> bool:
    """Return whether the value can be sent as a key."""
    return bool(value) and value.isascii() and value.isprintable() and " " not in value


def _secured(url: str) -> httpx2.URL:
    """Return the URL.

    Raises:
        Misconfigured: The key would be sent unencrypted to another machine.
    """
    address = parsed(url)
    if address is None or address.userinfo or not (address.scheme == "https" or is_loopback(address)):
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
