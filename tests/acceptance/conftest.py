"""One real server per test process, a few logged-in users, and a new workspace for every test."""

from collections.abc import Callable, Iterator

import httpx2
import pytest

from tests.acceptance.observed_server import ObservedServer, observed_server
from tests.acceptance.serving import Serving, serving
from tests.acceptance.workspace import PASSWORD, Someone, Workspace
from tests.databases import DatabaseUrls
from tests.openapi_checks import Described
from tests.wait_until import PATIENCE


@pytest.fixture(scope="session")
def server(database_urls: DatabaseUrls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """``toolcrib serve`` with its own database and data directory."""
    with serving(tmp_path_factory.mktemp("server"), database_urls) as started:
        yield started


@pytest.fixture(scope="session")
def http(server: Serving) -> Iterator[httpx2.Client]:
    """An API client without cookies: each request carries its own credentials.

    Checks every response against the OpenAPI description.
    """
    with httpx2.Client(base_url=server.api, trust_env=False, timeout=PATIENCE) as client:
        described = Described(client.get("/openapi.json").json())

        def check(response: httpx2.Response) -> None:
            if not response.headers.get("content-type", "").startswith("text/event-stream"):
                response.read()
                described.check(response)

        client.event_hooks = {"response": [check]}
        yield client


@pytest.fixture(scope="session")
def ada(server: Serving) -> Someone:
    """The user who owns the workspaces."""
    return registered(server, "ada@example.com")


@pytest.fixture(scope="session")
def grace(server: Serving) -> Someone:
    """A user who is a member only where a test adds them."""
    return registered(server, "grace@example.com")


@pytest.fixture
def new_workspace(server: Serving, http: httpx2.Client) -> Callable[[Someone], Workspace]:
    """Creates a workspace for a user."""

    def found(owner: Someone) -> Workspace:
        made = http.post("/workspaces", json={"name": "website"}, headers={"Authorization": f"Bearer {owner.token}"})
        assert made.status_code == 201, made.text
        workspace_id = made.json()["id"]
        project = server.data_dir / "workspaces" / workspace_id / "project"
        project.mkdir(parents=True)
        return Workspace(http, workspace_id, owner.token, project)

    return found


@pytest.fixture
def workspace(new_workspace: Callable[[Someone], Workspace], ada: Someone) -> Workspace:
    """A new workspace, with Ada's credentials."""
    return new_workspace(ada)


@pytest.fixture
def chat(workspace: Workspace) -> Callable[[str], str]:
    """Creates a session with this title. Returns the path of its chat in the tree."""

    def begin(title: str) -> str:
        made = workspace.post("/sessions", {"title": title})
        assert made.status_code == 201, made.text
        return f"/chats/{made.json()['id']}.chat"

    return begin


def registered(server: Serving, email: str) -> Someone:
    # A separate client: a login sets cookies, which no other request may send.
    with httpx2.Client(base_url=server.api, trust_env=False, timeout=PATIENCE) as client:
        person = client.post("/auth/register", json={"email": email, "password": PASSWORD})
        assert person.status_code == 201, person.text
        login = client.post("/auth/login", json={"email": email, "password": PASSWORD})
        assert login.status_code == 200, login.text
    return Someone(person.json()["id"], email, login.json()["access_token"])


@pytest.fixture(scope="module")
def one_observed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObservedServer]:
    with observed_server(tmp_path_factory.mktemp("observed")) as opened:
        yield opened


@pytest.fixture
def observed(one_observed: ObservedServer) -> Iterator[ObservedServer]:
    """A server whose log, metrics and traces have none of what the test planted; searched after the test."""
    yield one_observed
    one_observed.check()
