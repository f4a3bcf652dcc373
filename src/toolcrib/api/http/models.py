"""Model providers, their models, and a person's own credentials for providers and search engines."""

from typing import Annotated, Literal

from pydantic import StringConstraints

from toolcrib.api.api_services import ApiServices, Injected
from toolcrib.api.auth.principal import APerson, Present, Principal
from toolcrib.api.http_errors import examples
from toolcrib.api.routers import api_router
from toolcrib.core.errors import BadArguments
from toolcrib.core.provider_credentials import ProviderCredentials, RequestLimits
from toolcrib.providers.provider_registry import provider_classes
from toolcrib.schemas.models import ModelOut, ProviderCredentialsIn, ProviderCredentialsOut, RequestLimitsIn
from toolcrib.schemas.schema_base import Page
from toolcrib.storage.provider_credentials import ProviderCredentialsInfo
from toolcrib.websearch.brave import ENGINES

router = api_router(tag="models")


Provider = Annotated[str, StringConstraints(max_length=100)]


@router.get("/providers")
async def list_providers(principal: Present) -> Page[str]:
    """List the providers."""
    return Page(items=list(provider_classes()))


@router.get("/credentials")
async def list_credentials(principal: APerson, services: Injected) -> Page[ProviderCredentialsOut]:
    """List the providers for which you have stored credentials. Secrets are not shown."""
    found = await services.access.list(principal.person)
    return Page(items=[_shown(one) for one in found])


@router.put("/credentials/{provider}", status_code=204, responses=examples("VALIDATION_ERROR", "NOT_FOUND"))
async def store_credentials(
    provider: Provider, given: ProviderCredentialsIn, principal: Present, services: Injected
) -> None:
    """Store your own credentials for a provider. Replaces earlier ones.

    `brave` is a search engine: with a key for it, your searches and those of agents that act for you use it first, and
    never use the server's key.
    """
    if provider in ENGINES:
        await _store_search_key(provider, given, principal, services)
        return
    if provider not in provider_classes():
        known = ", ".join((*provider_classes(), *ENGINES))
        raise BadArguments({"provider": f"There is no provider {provider!r}. Providers: {known}."})
    address = str(given.base_url).rstrip("/") if given.base_url else None
    secret = given.secret.get_secret_value()
    if given.check:
        await services.providers.validate(provider, ProviderCredentials(secret, address))
    await services.access.store(principal.person, provider, ProviderCredentials(secret, address))


async def _store_search_key(
    engine: str, given: ProviderCredentialsIn, principal: Principal, services: ApiServices
) -> None:
    if given.base_url is not None:
        raise BadArguments({"base_url": "Only the operator can set the address of a search engine. Leave it out."})
    secret = given.secret.get_secret_value().strip()
    await services.search_keys.check(secret, ask=given.check)
    await services.access.store(principal.person, engine, ProviderCredentials(secret))


def _shown(info: ProviderCredentialsInfo) -> ProviderCredentialsOut:
    kind: Literal["models", "search"] = "search" if info.provider in ENGINES else "models"
    return ProviderCredentialsOut(
        provider=info.provider,
        kind=kind,
        base_url=info.base_url,
        at_once=info.limits.at_once,
        per_minute=info.limits.per_minute,
        created_at=info.created_at,
        updated_at=info.updated_at,
    )


@router.put("/credentials/{provider}/limits", status_code=204, responses=examples("VALIDATION_ERROR", "NOT_FOUND"))
async def limit_requests(provider: Provider, given: RequestLimitsIn, principal: APerson, services: Injected) -> None:
    """Limit the model requests with your credentials, in all processes of the server together.

    A run that has no room waits in no process (`waits_for: credential`), and goes on soon after there is room.
    Workspaces take turns. Replaces earlier limits.
    """
    if provider in ENGINES:
        raise BadArguments({"provider": f"{provider!r} is a search engine. Only model requests can be limited."})
    await services.access.set_limits(principal.person, provider, RequestLimits(given.at_once, given.per_minute))


@router.delete("/credentials/{provider}", status_code=204, responses=examples("NOT_FOUND"))
async def remove_credentials(provider: Provider, principal: APerson, services: Injected) -> None:
    """Delete your credentials for a provider."""
    await services.access.remove(principal.person, provider)


@router.get("/providers/{provider}/models", responses=examples("NOT_FOUND"))
async def list_models(provider: Provider, principal: Present, services: Injected) -> Page[ModelOut]:
    """List the models of a provider that you may use."""
    credentials = await services.model_access.of(principal.user_id, provider)
    return Page[ModelOut].of(await services.providers.models(provider, credentials))
