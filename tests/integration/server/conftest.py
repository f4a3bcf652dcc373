"""The application over a real database, and people who are already logged in to it."""

from collections.abc import AsyncIterator

import httpx2
import pytest
from fastapi import FastAPI
from pwdlib.hashers.argon2 import Argon2Hasher

from tests.described import Described
from tests.integration.server.people import API, PASSWORD, Founder, Newcomer, Someone, new_email
from tests.integration.server.wire import Room, listening
from toolcrib.domain.ids import WorkspaceId
from toolcrib.engine.live import Live
from toolcrib.engine.runs.access import ModelAccess
from toolcrib.engine.runs.desk import Desk
from toolcrib.engine.seals import Verifier
from toolcrib.providers.registry import Providers, open_providers
from toolcrib.sandbox.sandbox import Sandbox
from toolcrib.server.app import create_app
from toolcrib.server.login_links import LoginLinks
from toolcrib.server.passwords import Passwords
from toolcrib.server.services import Services
from toolcrib.server.tokens import AccessTokens
from toolcrib.settings import Settings
from toolcrib.storage.access import Access
from toolcrib.storage.accounts import Accounts, Person
from toolcrib.storage.agents import Agents
from toolcrib.storage.audit import Audit, Sealing
from toolcrib.storage.bookmarks import Bookmarks
from toolcrib.storage.calls import Calls
from toolcrib.storage.database import Database, Tenant
from toolcrib.storage.files import Files
from toolcrib.storage.grants import Grants
from toolcrib.storage.keys import Keys
from toolcrib.storage.past_calls import PastCalls
from toolcrib.storage.runs import Runs
from toolcrib.storage.sessions import Sessions
from toolcrib.storage.tickets import Tickets
from toolcrib.storage.usage import Usage
from toolcrib.storage.workspaces import Workspaces
from toolcrib.wiring import assemble, audit_key, credentials_lock


@pytest.fixture
async def live(database: Database) -> AsyncIterator[Live]:
    async with Live.open(database) as opened:
        yield opened


@pytest.fixture
async def providers() -> AsyncIterator[Providers]:
    async with open_providers(private_hosts=["*"]) as opened:
        yield opened


@pytest.fixture
def services(settings: Settings, database: Database, live: Live, providers: Providers) -> Services:
    sandbox = Sandbox()
    engine = assemble(settings, database, live=live, sandbox=sandbox)
    access = Access(database, credentials_lock(settings))
    return Services(
        settings=settings,
        database=database,
        accounts=Accounts(database),
        keys=Keys(database),
        workspaces=Workspaces(database),
        agents=Agents(database),
        files=Files(database),
        audit=Audit(database),
        verifier=Verifier(Sealing(database), audit_key(settings), anchor=settings.audit_anchor),
        usage=Usage(database),
        past_calls=PastCalls(database),
        sandbox=sandbox,
        calls=Calls(database),
        sessions=Sessions(database),
        bookmarks=Bookmarks(database),
        tickets=Tickets(database),
        live=live,
        executor=engine.executor,
        registry=engine.registry,
        toolbox=engine.toolbox,
        approvals=engine.approvals,
        questions=engine.questions,
        grants=Grants(database),
        desk=Desk(Runs(database), engine.bell, live),
        access=access,
        model_access=ModelAccess(access),
        providers=providers,
        passwords=Passwords(Argon2Hasher(time_cost=1, memory_cost=8, parallelism=1)),
        tokens=AccessTokens.from_settings(settings),
        login_links=LoginLinks(settings.jwt_secret.get_secret_value()),
    )


@pytest.fixture
def app(services: Services) -> FastAPI:
    return create_app(services)


@pytest.fixture
async def client(app: FastAPI) -> AsyncIterator[httpx2.AsyncClient]:
    """Every answer that it gets must be as the API is described."""
    described = Described(app.openapi())

    async def check(response: httpx2.Response) -> None:
        if not response.headers.get("content-type", "").startswith("text/event-stream"):
            await response.aread()
            described.check(response)

    async with httpx2.AsyncClient(
        transport=httpx2.ASGITransport(app), base_url=API, event_hooks={"response": [check]}
    ) as opened:
        yield opened


@pytest.fixture
def newcomer(services: Services) -> Newcomer:
    """Makes another person."""

    async def make() -> Someone:
        email = new_email()
        profile = await services.accounts.create_user(
            email=email, full_name="Ada", password_hash=await services.passwords.hash(PASSWORD)
        )
        return Someone(profile.user_id, email, services.tokens.issue(profile.user_id, 0))

    return make


@pytest.fixture
def founded(services: Services) -> Founder:
    """Makes a workspace that belongs to someone."""

    async def make(owner: Someone) -> WorkspaceId:
        workspace = await services.workspaces.create(Person(owner.id), name="website", node="test-node")
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
async def room(services: Services, ada: Someone, workspace_id: WorkspaceId) -> AsyncIterator[Room]:
    """A session of Ada's, behind a server that listens."""
    tenant = Tenant(workspace_id, ada.id, 0)
    session = await services.sessions.create(tenant, title="a room")
    async with listening(services) as address:
        yield Room(services, address, tenant, session.id, ada.token)
