"""Model providers, the models they have, and a person's own access to them."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter
from pydantic import Field, HttpUrl, SecretStr, StringConstraints

from toolcrib.domain.errors import BadArguments
from toolcrib.providers.provider import Credentials
from toolcrib.providers.registry import NAMES
from toolcrib.server.auth import APerson
from toolcrib.server.bodies import StrictRoute
from toolcrib.server.errors import examples
from toolcrib.server.services import Injected
from toolcrib.server.shapes import Given, Page, Shown
from toolcrib.storage.access import StoredAccess

router = APIRouter(tags=["models"], route_class=StrictRoute)


class NewCredentials(Given):
    """Access to a provider. The secret is encrypted, and never shown again."""

    secret: SecretStr = Field(default=SecretStr(""), max_length=10_000, description="The provider's API key.")
    base_url: HttpUrl | None = Field(default=None, description="For servers that imitate a provider.")
    check: bool = Field(default=True, description="Ask the provider first whether it accepts them.")


class CredentialsAnswer(Shown):
    provider: str
    base_url: str | None
    created_at: datetime
    updated_at: datetime


class ModelAnswer(Shown):
    id: str
    name: str
    context_window: int | None
    supports_tools: bool
    max_output_tokens: int | None


Provider = Annotated[str, StringConstraints(max_length=100)]


@router.get("/providers", responses=examples("INVALID_TOKEN"), name="list_providers")
async def providers(principal: APerson) -> list[str]:
    """The providers there are."""
    return list(NAMES)


@router.get("/credentials", responses=examples("INVALID_TOKEN"), name="list_credentials")
async def list_all(principal: APerson, services: Injected) -> Page[CredentialsAnswer]:
    """For which providers you have stored access. The secrets are not shown."""
    found = await services.access.list(principal.person)
    return Page(items=[CredentialsAnswer.model_validate(one) for one in found])


@router.put(
    "/credentials/{provider}",
    status_code=204,
    responses=examples("VALIDATION_ERROR", "INVALID_TOKEN", "NOT_FOUND"),
    name="store_credentials",
)
async def store(provider: Provider, given: NewCredentials, principal: APerson, services: Injected) -> None:
    """Stores your own access to a provider, in place of an earlier one."""
    if provider not in NAMES:
        raise BadArguments({"provider": f"There is no provider {provider!r}. There are: {', '.join(NAMES)}."})
    address = str(given.base_url).rstrip("/") if given.base_url else None
    secret = given.secret.get_secret_value()
    if given.check:
        chosen = await services.providers.get(provider)
        await chosen.validate_credentials(Credentials(secret, address))
    await services.access.store(principal.person, provider, StoredAccess(secret, address))


@router.delete(
    "/credentials/{provider}",
    status_code=204,
    responses=examples("INVALID_TOKEN", "NOT_FOUND"),
    name="remove_credentials",
)
async def remove(provider: Provider, principal: APerson, services: Injected) -> None:
    """Forgets your access to a provider."""
    await services.access.remove(principal.person, provider)


@router.get(
    "/providers/{provider}/models",
    responses=examples("INVALID_TOKEN", "NOT_FOUND"),
    name="list_models",
)
async def models(provider: Provider, principal: APerson, services: Injected) -> Page[ModelAnswer]:
    """The models that you may use of a provider."""
    credentials = await services.model_access.of(principal.user_id, provider)
    chosen = await services.providers.get(provider)
    found = await chosen.list_models(credentials)
    return Page(items=[ModelAnswer.model_validate(one) for one in found])
