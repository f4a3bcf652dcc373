"""Model providers, their models, and a person's own credentials for providers and search engines."""

from datetime import datetime
from typing import Annotated, Literal

from fastapi import APIRouter
from pydantic import Field, HttpUrl, SecretStr, StringConstraints

from toolcrib.api.api_services import ApiServices, Injected
from toolcrib.api.auth.principal import APerson, Present, Principal
from toolcrib.api.http_errors import examples
from toolcrib.api.request_guard import StrictRoute
from toolcrib.api.schema_base import InModel, OutModel, Page
from toolcrib.core.errors import BadArguments
from toolcrib.gate.search_keys import ENGINES
from toolcrib.providers.provider import ProviderCredentials
from toolcrib.providers.provider_registry import NAMES
from toolcrib.storage.provider_credentials import ProviderCredentialsInfo, StoredProviderCredentials

router = APIRouter(tags=["models"], route_class=StrictRoute)


class ProviderCredentialsIn(InModel):
    """Credentials for a provider. The secret is stored encrypted and never shown again."""

    secret: SecretStr = Field(default=SecretStr(""), max_length=10_000, description="The provider's API key.")
    base_url: HttpUrl | None = Field(default=None, description="The URL of a server with the same API as the provider.")
    check: bool = Field(default=True, description="Check the credentials with the provider before saving them.")


class ProviderCredentialsOut(OutModel):
    provider: str
    kind: Literal["models", "search"] = Field(description="What the credentials are for: models or web search.")
    base_url: str | None
    created_at: datetime
    updated_at: datetime


class ModelOut(OutModel):
    id: str
    name: str
    context_window: int | None
    supports_tools: bool
    max_output_tokens: int | None


Provider = Annotated[str, StringConstraints(max_length=100)]


@router.get("/providers", responses=examples("INVALID_TOKEN"), name="list_providers")
async def providers(principal: Present) -> list[str]:
    """List the providers."""
    return list(NAMES)


@router.get("/credentials", responses=examples("INVALID_TOKEN"), name="list_credentials")
async def list_all(principal: APerson, services: Injected) -> Page[ProviderCredentialsOut]:
    """List the providers for which you have stored credentials. Secrets are not shown."""
    found = await services.access.list(principal.person)
    return Page(items=[_shown(one) for one in found])


@router.put(
    "/credentials/{provider}",
    status_code=204,
    responses=examples("VALIDATION_ERROR", "INVALID_TOKEN", "NOT_FOUND"),
    name="store_credentials",
)
async def store(provider: Provider, given: ProviderCredentialsIn, principal: Present, services: Injected) -> None:
    """Store your own credentials for a provider. Replaces earlier ones.

    `brave` is a search engine: with a key for it, your searches and those of agents that act for you use it first, and
    never use the server's key.
    """
    if provider in ENGINES:
        await _store_search_key(provider, given, principal, services)
        return
    if provider not in NAMES:
        known = ", ".join((*NAMES, *ENGINES))
        raise BadArguments({"provider": f"There is no provider {provider!r}. Providers: {known}."})
    address = str(given.base_url).rstrip("/") if given.base_url else None
    secret = given.secret.get_secret_value()
    if given.check:
        chosen = await services.providers.get(provider)
        await chosen.validate_credentials(ProviderCredentials(secret, address))
    await services.access.store(principal.person, provider, StoredProviderCredentials(secret, address))


async def _store_search_key(
    engine: str, given: ProviderCredentialsIn, principal: Principal, services: ApiServices
) -> None:
    if given.base_url is not None:
        raise BadArguments({"base_url": "Only the operator can set the address of a search engine. Leave it out."})
    secret = given.secret.get_secret_value().strip()
    await services.search_keys.check(secret, ask=given.check)
    await services.access.store(principal.person, engine, StoredProviderCredentials(secret))


def _shown(info: ProviderCredentialsInfo) -> ProviderCredentialsOut:
    kind: Literal["models", "search"] = "search" if info.provider in ENGINES else "models"
    return ProviderCredentialsOut(
        provider=info.provider,
        kind=kind,
        base_url=info.base_url,
        created_at=info.created_at,
        updated_at=info.updated_at,
    )


@router.delete(
    "/credentials/{provider}",
    status_code=204,
    responses=examples("INVALID_TOKEN", "NOT_FOUND"),
    name="remove_credentials",
)
async def remove(provider: Provider, principal: APerson, services: Injected) -> None:
    """Delete your credentials for a provider."""
    await services.access.remove(principal.person, provider)


@router.get(
    "/providers/{provider}/models",
    responses=examples("INVALID_TOKEN", "NOT_FOUND"),
    name="list_models",
)
async def models(provider: Provider, principal: Present, services: Injected) -> Page[ModelOut]:
    """List the models of a provider that you may use."""
    credentials = await services.model_access.of(principal.user_id, provider)
    chosen = await services.providers.get(provider)
    found = await chosen.list_models(credentials)
    return Page(items=[ModelOut.model_validate(one) for one in found])
