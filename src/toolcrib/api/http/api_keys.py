"""API keys. Keys of agents are created in ``agents``; both kinds are listed and revoked here."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

from fastapi import APIRouter
from pydantic import Field

from toolcrib.api.api_services import Injected
from toolcrib.api.auth.principal import APerson, LoggedIn
from toolcrib.api.http_errors import examples
from toolcrib.api.request_guard import StrictRoute
from toolcrib.api.schema_base import InModel, Name, OutModel, Page
from toolcrib.core.ids import KeyId

router = APIRouter(prefix="/api-keys", tags=["API keys"], route_class=StrictRoute)


class ApiKeyCreate(InModel):
    name: Name = Field(examples=["laptop"])
    expires_in_days: int | None = Field(default=None, ge=1, le=3650, description="By default, the key does not expire.")

    @property
    def expires_at(self) -> datetime | None:
        """When the key expires; None if never."""
        return datetime.now(UTC) + timedelta(days=self.expires_in_days) if self.expires_in_days else None


class ApiKeyOut(OutModel):
    id: UUID
    name: str = Field(examples=["laptop"])
    hint: str = Field(description="The first characters of the key.", examples=["tck_9fQ2xA"])
    workspace_id: UUID | None = Field(description="The agent's workspace. Null for a user's key.")
    agent_id: UUID | None
    created_at: datetime
    expires_at: datetime | None


class ApiKeyCreatedOut(OutModel):
    key: ApiKeyOut
    secret: str = Field(description="The API key. It is not shown again.", examples=["tck_9fQ2xA…"])


@router.post(
    "",
    status_code=201,
    responses=examples("VALIDATION_ERROR", "INVALID_TOKEN", "FORBIDDEN", "CONFLICT"),
    name="create_api_key",
)
async def create(given: ApiKeyCreate, principal: LoggedIn, services: Injected) -> ApiKeyCreatedOut:
    """Create a key that may do what its user may, except creating and revoking keys."""
    key, secret = await services.keys.create(principal.person, name=given.name, expires_at=given.expires_at)
    return ApiKeyCreatedOut(key=ApiKeyOut.model_validate(key), secret=secret)


@router.get("", responses=examples("INVALID_TOKEN", "FORBIDDEN"), name="list_api_keys")
async def list_all(principal: APerson, services: Injected) -> Page[ApiKeyOut]:
    """List the keys that you created, for yourself and for agents."""
    keys = await services.keys.list(principal.person)
    return Page(items=[ApiKeyOut.model_validate(key) for key in keys])


@router.delete(
    "/{key_id}",
    status_code=204,
    responses=examples("INVALID_TOKEN", "FORBIDDEN", "NOT_FOUND"),
    name="revoke_api_key",
)
async def revoke(key_id: UUID, principal: LoggedIn, services: Injected) -> None:
    """Revoke a key. It ends at once."""
    await services.keys.revoke(principal.person, KeyId(key_id))
