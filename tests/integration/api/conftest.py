"""The application over a real database, with people who are already logged in."""

from collections.abc import AsyncIterator

import httpx2
import pytest
from fastapi import FastAPI

from tests.integration.api.accounts import API, PASSWORD, Founder, Newcomer, Someone, new_email
from tests.integration.api.websocket_room import Room, listening
from tests.openapi_checks import Described
from toolcrib.api.api_services import ApiServices
from toolcrib.api.app import create_app
from toolcrib.api.passwords import PasswordHasher, Passwords
from toolcrib.core.ids import WorkspaceId
from toolcrib.events import EventHub
from toolcrib.providers.provider_registry import ProviderRegistry
from toolcrib.settings import Settings
from toolcrib.storage.database import Database, Tenant
from toolcrib.storage.users import ActingUser
from toolcrib.wiring.server import api_services
from toolcrib.wiring.tool_runtime import assemble


@pytest.fixture
def services(settings: Settings, database: Database, live: EventHub, providers: ProviderRegistry) -> ApiServices:
    """The services of the routes, without background workers and with quick password hashes."""
    passwords = Passwords(PasswordHasher(iterations=1, lanes=1, memory_kib=8))
    return api_services(assemble(settings, database, live=live), live, providers, passwords=passwords)


@pytest.fixture
def app(services: ApiServices) -> FastAPI:
    return create_app(services)


@pytest.fixture(scope="session")
def openapi_checks() -> list[Described]:
    """Holds the checks of this process: the document is the same for every app, and takes most of a second."""
    return []


@pytest.fixture
async def client(app: FastAPI, openapi_checks: list[Described]) -> AsyncIterator[httpx2.AsyncClient]:
    """A client that checks every response against the OpenAPI document."""
    if not openapi_checks:
        openapi_checks.append(Described(app.openapi()))
    described = openapi_checks[0]

    async def check(response: httpx2.Response) -> None:
        if not response.headers.get("content-type", "").startswith("text/event-stream"):
            await response.aread()
            described.check(response)

    async with httpx2.AsyncClient(
        transport=httpx2.ASGITransport(app), base_url=API, event_hooks={"response": [check]}
    ) as opened:
        yield opened


@pytest.fixture
def newcomer(services: ApiServices) -> Newcomer:
    """Create another person."""

    async def make() -> Someone:
        email = new_email()
        profile = await services.accounts.create_user(
            email=email, full_name="Ada", password_hash=await services.passwords.hash(PASSWORD)
        )
        return Someone(profile.user_id, email, services.tokens.issue(profile.user_id, 0))

    return make


@pytest.fixture
def founded(services: ApiServices) -> Founder:
    """Create a workspace that a person owns."""

    async def make(owner: Someone) -> WorkspaceId:
        workspace = await services.workspaces.create(
            ActingUser(owner.id), name="website", node=services.settings.node_name
        )
        return workspace.id

    return make


@pytest.fixture
async def ada(newcomer: Newcomer) -> Someone:
    return await newcomer()


@pytest.fixture
async def workspace_id(founded: Founder, ada: Someone) -> WorkspaceId:
    """Ada's workspace."""
    return await founded(ada)


@pytest.fixture
async def room(services: ApiServices, ada: Someone, workspace_id: WorkspaceId) -> AsyncIterator[Room]:
    """A session in Ada's workspace, behind a listening server."""
    tenant = Tenant(workspace_id, ada.id, 0)
    session = await services.sessions.create(tenant, title="a room")
    async with listening(services) as address:
        yield Room(services, address, tenant, session.id, ada.token)
