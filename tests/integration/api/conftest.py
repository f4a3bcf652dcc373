"""The application over a real database, with people who are already logged in."""

from collections.abc import AsyncIterator

import httpx2
import pytest
from fastapi import FastAPI
from pwdlib.hashers.argon2 import Argon2Hasher

from tests.integration.api.accounts import API, PASSWORD, Founder, Newcomer, Someone, new_email
from tests.integration.api.websocket_room import Room, listening
from tests.openapi_checks import Described
from toolcrib.api.access_tokens import AccessTokens, LoginLinks, SetupLinks
from toolcrib.api.api_services import ApiServices
from toolcrib.api.app import create_app
from toolcrib.api.passwords import Passwords
from toolcrib.core.ids import WorkspaceId
from toolcrib.events import EventHub
from toolcrib.gate.audit_verification import AuditVerifier
from toolcrib.providers.provider_registry import ProviderRegistry, open_providers
from toolcrib.runs.run_loader import CredentialResolver
from toolcrib.runs.run_service import RunService
from toolcrib.sandbox.sandbox import Sandbox
from toolcrib.settings import Settings
from toolcrib.storage.agents import AgentStore, GrantStore
from toolcrib.storage.api_keys import ApiKeyStore
from toolcrib.storage.audit import AuditSealStore, AuditStore
from toolcrib.storage.database import Database, Tenant
from toolcrib.storage.files import FileStore
from toolcrib.storage.invitations import InvitationStore
from toolcrib.storage.packages import PackageStore
from toolcrib.storage.provider_credentials import ProviderCredentialStore
from toolcrib.storage.runs import RunStore
from toolcrib.storage.sessions import ConversationCursorStore, SessionStore
from toolcrib.storage.tool_calls import CallHistoryStore, ToolCallStore
from toolcrib.storage.users import ActingUser, TicketStore, UserStore
from toolcrib.storage.workspaces import UsageStore, WorkspaceStore
from toolcrib.wiring import assemble, audit_seal_key, credentials_lock
from toolcrib.workspace.packages.installer import PackageInstaller


@pytest.fixture
async def live(database: Database) -> AsyncIterator[EventHub]:
    async with EventHub.open(database) as opened:
        yield opened


@pytest.fixture
async def providers() -> AsyncIterator[ProviderRegistry]:
    async with open_providers(private_hosts=["*"]) as opened:
        yield opened


@pytest.fixture
def services(settings: Settings, database: Database, live: EventHub, providers: ProviderRegistry) -> ApiServices:
    sandbox = Sandbox()
    engine = assemble(settings, database, live=live, sandbox=sandbox)
    access = ProviderCredentialStore(database, credentials_lock(settings))
    return ApiServices(
        settings=settings,
        database=database,
        accounts=UserStore(database),
        keys=ApiKeyStore(database),
        workspaces=WorkspaceStore(database),
        agents=AgentStore(database),
        packages=PackageInstaller(
            PackageStore(database),
            engine.workspace_services.files,
            engine.workspace_services.mounts,
            node=settings.node_name,
        ),
        files=FileStore(database),
        audit=AuditStore(database),
        verifier=AuditVerifier(AuditSealStore(database), audit_seal_key(settings), anchor=settings.audit_anchor),
        usage=UsageStore(database),
        past_calls=CallHistoryStore(database),
        sandbox=sandbox,
        calls=ToolCallStore(database),
        sessions=SessionStore(database),
        conversation_cursors=ConversationCursorStore(database),
        tickets=TicketStore(database),
        live=live,
        executor=engine.executor,
        registry=engine.registry,
        toolbox=engine.toolbox,
        approvals=engine.approvals,
        questions=engine.questions,
        grants=GrantStore(database),
        invitations=InvitationStore(database),
        run_service=RunService(RunStore(database), engine.wake_signal, live),
        access=access,
        model_access=CredentialResolver(access),
        search_keys=engine.search_keys,
        providers=providers,
        passwords=Passwords(Argon2Hasher(time_cost=1, memory_cost=8, parallelism=1)),
        tokens=AccessTokens.from_settings(settings),
        login_links=LoginLinks(settings.jwt_secret.get_secret_value(), node=settings.node_name),
        setup_links=SetupLinks(settings.jwt_secret.get_secret_value()),
    )


@pytest.fixture
def app(services: ApiServices) -> FastAPI:
    return create_app(services)


@pytest.fixture
async def client(app: FastAPI) -> AsyncIterator[httpx2.AsyncClient]:
    """A client that checks every response against the OpenAPI document."""
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
        workspace = await services.workspaces.create(ActingUser(owner.id), name="website", node="test-node")
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
