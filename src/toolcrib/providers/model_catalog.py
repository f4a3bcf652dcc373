"""Facts about models: windows and prices from genai-prices, the rest from ``model_facts.toml``. Needs no network.

A fact that nobody knows is None, and is never guessed: requests then leave it to the server, and costs are unknown.
"""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cache
from importlib.resources import files
from typing import Any, Final

from toolcrib.core.model_options import Effort
from toolcrib.core.model_stream import TokenUsage

# Their names in genai-prices, for providers with other ones.
_PRICED_AS: Final = {"gemini": "google", "copilot": "github-copilot"}


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What is known about a model; None is unknown.

    ``thinking``: the form in which the model is asked to think, in the words of its wire. ``efforts``: the values that
    it accepts; empty if it accepts none. ``effort_field``: whether it has a field for effort besides thinking.
    """

    max_output_tokens: int | None = None
    images: bool | None = None
    pdfs: bool | None = None
    temperature: bool | None = None
    thinking: str | None = None
    effort_field: bool = False
    efforts: tuple[Effort, ...] | None = None


@dataclass(frozen=True, slots=True)
class ModelPrice:
    """The cost of a request in US dollars; None if nobody knows the model's prices."""

    input: Decimal
    output: Decimal

    @property
    def total(self) -> Decimal:
        """The cost of input and output."""
        return self.input + self.output


@cache
def model_facts(provider: str, model: str) -> ModelFacts:
    """Return what is known about how a provider's model is asked."""
    entries: Sequence[dict[str, Any]] = _data().get(provider, ())
    matching = [entry for entry in entries if model.startswith(entry["prefix"])]
    found = dict(max(matching, key=lambda entry: len(entry["prefix"]), default={"prefix": ""}))
    del found["prefix"]
    if "efforts" in found:
        found["efforts"] = tuple(Effort(effort) for effort in found["efforts"])
    return ModelFacts(**found)


def context_window(provider: str, model: str) -> int | None:
    """Return the size of a model's context window in tokens."""
    found = _priced_model(provider, model)
    window: int | None = found.context_window if found else None
    return window


def is_known(provider: str, model: str) -> bool:
    """Return whether the catalogue has this model."""
    return _priced_model(provider, model) is not None


def catalog_name(provider: str, model: str) -> str | None:
    """Return the catalogue's own name of a model, which may be shorter; None if the catalogue does not have it."""
    found = _priced_model(provider, model)
    return str(found.id) if found else None


def load_catalog() -> None:
    """Load the data, which takes half a second. Otherwise it is loaded on first use."""
    _priced_model("openai", "gpt-5")


def price(provider: str, model: str, usage: TokenUsage, *, at: datetime | None = None) -> ModelPrice | None:
    """Return what a request cost; None if nobody knows the model's prices."""
    if not is_known(provider, model):
        return None
    from genai_prices import Usage, calc_price

    used = Usage(
        input_tokens=usage.input_tokens,
        cache_read_tokens=usage.cached_input_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        output_tokens=usage.output_tokens,
    )
    found = calc_price(
        used,
        model,
        provider_id=_PRICED_AS.get(provider, provider),
        genai_request_timestamp=at or datetime.now(UTC),
    )
    return ModelPrice(found.input_price, found.output_price)


def checked_on() -> date:
    """Return the date of the data that ships with Toolcrib."""
    checked: date = _data()["checked"]
    return checked


@cache
def _data() -> dict[str, Any]:
    return tomllib.loads(files("toolcrib.providers").joinpath("model_facts.toml").read_text())


def _priced_model(provider: str, model: str) -> Any:
    # Not at the top: see `load_catalog`.
    from genai_prices.data_snapshot import get_snapshot

    snapshot = get_snapshot()
    name = _PRICED_AS.get(provider, provider)
    found = next((one for one in snapshot.providers if one.id == name), None)
    return found.find_model(model, all_providers=snapshot.providers) if found else None
