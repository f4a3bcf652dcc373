"""What the routes work with. Wiring makes it once; the application carries it."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

from fastapi import Depends
from starlette.requests import HTTPConnection

from toolcrib.sandbox.sandbox import Sandbox
from toolcrib.server.doors import Doors
from toolcrib.server.limits import RateLimits
from toolcrib.server.login_links import LoginLinks
from toolcrib.server.passwords import Passwords
from toolcrib.server.running_calls import RunningCalls
from toolcrib.server.tokens import AccessTokens
from toolcrib.settings import Settings
from toolcrib.storage.access import Access
from toolcrib.storage.accounts import Accounts
from toolcrib.storage.agents import Agents
from toolcrib.storage.audit import Audit
from toolcrib.storage.bookmarks import Bookmarks
from toolcrib.storage.calls import Calls
from toolcrib.storage.database import Database
from toolcrib.storage.files import Files
from toolcrib.storage.grants import Grants
from toolcrib.storage.keys import Keys
from toolcrib.storage.past_calls import PastCalls
from toolcrib.storage.sessions import Sessions
from toolcrib.storage.tickets import Tickets
from toolcrib.storage.usage import Usage
from toolcrib.storage.workspaces import Workspaces

if TYPE_CHECKING:
    from toolcrib.engine.approvals import Approvals
    from toolcrib.engine.executor import Executor
    from toolcrib.engine.live import Live
    from toolcrib.engine.questions import Questions
    from toolcrib.engine.runs.access import ModelAccess
    from toolcrib.engine.runs.desk import Desk
    from toolcrib.engine.seals import Verifier
    from toolcrib.mcp.toolbox import Toolbox
    from toolcrib.providers.registry import Providers
    from toolcrib.tools.registry import Registry


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """Everything a route may use."""

    settings: Settings
    database: Database
    accounts: Accounts
    keys: Keys
    workspaces: Workspaces
    agents: Agents
    files: Files
    audit: Audit
    verifier: "Verifier"
    usage: Usage
    past_calls: PastCalls
    sandbox: Sandbox
    calls: Calls
    sessions: Sessions
    bookmarks: Bookmarks
    tickets: Tickets
    live: "Live"
    approvals: "Approvals"
    questions: "Questions"
    grants: Grants
    desk: "Desk"
    access: Access
    model_access: "ModelAccess"
    providers: "Providers"
    executor: "Executor"
    registry: "Registry"
    toolbox: "Toolbox"
    passwords: Passwords
    tokens: AccessTokens
    login_links: LoginLinks
    limits: RateLimits = field(default_factory=RateLimits)
    doors: Doors = field(default_factory=Doors)
    running_calls: RunningCalls = field(default_factory=RunningCalls)


def services_of(connection: HTTPConnection) -> Services:
    """The services of the application that answers this request."""
    services: Services = connection.scope["app"].state.services
    return services


async def _injected(connection: HTTPConnection) -> Services:
    # Not a plain function, which FastAPI would send to a thread.
    return services_of(connection)


Injected = Annotated[Services, Depends(_injected)]
