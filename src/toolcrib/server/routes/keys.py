"""A person's API keys. Keys for agents are made in ``agents``; both are listed and revoked here."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

from fastapi import APIRouter
from pydantic import Field

from toolcrib.domain.ids import KeyId
from toolcrib.server.auth import APerson, LoggedIn
from toolcrib.server.bodies import StrictRoute
from toolcrib.server.errors import examples
from toolcrib.server.services import Injected
from toolcrib.server.shapes import Given, Name, Page, Shown

router = APIRouter(prefix="/api-keys", tags=["keys"], route_class=StrictRoute)


class NewKey(Given):
    name: Name = Field(examples=["laptop"])
    expires_in_days: int | None = Field(default=None, ge=1, le=3650, description="Without it, until it is revoked.")

    @property
    def expires_at(self) -> datetime | None:
        return datetime.now(UTC) + timedelta(days=self.expires_in_days) if self.expires_in_days else None


class KeyAnswer(Shown):
    id: UUID
    name: str = Field(examples=["laptop"])
    hint: str = Field(description="How the key begins.", examples=["tck_9fQ2xA"])
    workspace_id: UUID | None = Field(description="Set for an agent's key: it acts there only.")
    agent_id: UUID | None
    created_at: datetime
    expires_at: datetime | None


class MadeKey(Shown):
    key: KeyAnswer
    secret: str = Field(description="Shown this once.", examples=["tck_9fQ2xA…"])


@router.post(
    "",
    status_code=201,
    responses=examples("VALIDATION_ERROR", "INVALID_TOKEN", "FORBIDDEN"),
    name="create_api_key",
)
async def create(given: NewKey, principal: LoggedIn, services: Injected) -> MadeKey:
    """Makes a key that may do what its person may, but for making and revoking keys."""
    key, secret = await services.keys.create(principal.person, name=given.name, expires_at=given.expires_at)
    return MadeKey(key=KeyAnswer.model_validate(key), secret=secret)


@router.get("", responses=examples("INVALID_TOKEN", "FORBIDDEN"), name="list_api_keys")
async def list_all(principal: APerson, services: Injected) -> Page[KeyAnswer]:
    """The keys that the person has made, for themselves and for agents."""
    keys = await services.keys.list(principal.person)
    return Page(items=[KeyAnswer.model_validate(key) for key in keys])


@router.delete(
    "/{key_id}",
    status_code=204,
    responses=examples("INVALID_TOKEN", "FORBIDDEN", "NOT_FOUND"),
    name="revoke_api_key",
)
async def revoke(key_id: UUID, principal: LoggedIn, services: Injected) -> None:
    """Ends a key at once."""
    await services.keys.revoke(principal.person, KeyId(key_id))
