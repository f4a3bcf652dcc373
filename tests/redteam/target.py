"""A real server to attack: two tenants, each with one of everything, created as users create it."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from tests.databases import DatabaseUrls
from tests.fakes.packages import package_of
from tests.faults.server import Server, started_server
from tests.wait_until import PATIENCE

PASSWORD = "correct horse battery staple"
# In names and contents of Ada's workspace, and in no request of anybody else: it must never leak.
MARK = "marked-as-adas"


@dataclass(frozen=True)
class Login:
    """A person who is registered and logged in."""

    id: str
    email: str
    token: str
    refresh_token: str

    @property
    def headers(self) -> dict[str, str]:
        return bearer(self.token)


@dataclass(frozen=True)
class Tenant:
    """A workspace with one of everything: ids under their names in API paths."""

    owner: Login
    ids: dict[str, str]
    key: str
    agent_key: str

    @property
    def workspace(self) -> str:
        return f"/workspaces/{self.ids['workspace_id']}"


@dataclass(frozen=True)
class Target:
    """The server, Ada's workspace that is attacked, and Mallory with her own."""

    directory: Path
    server: Server
    http: httpx2.Client
    document: dict[str, Any]
    ada: Tenant
    mallory: Tenant

    @property
    def project(self) -> Path:
        """Return the path of Ada's files."""
        return self.server.data_dir / "workspaces" / self.ada.ids["workspace_id"] / "project"

    def register(self, name: str) -> Login:
        return register(self.http, name)

    def call(self, tool: str, arguments: Any, token: str | None = None) -> httpx2.Response:
        """Call a tool in Ada's workspace, as Ada by default."""
        return self.http.post(
            f"{self.ada.workspace}/tools",
            json={"tool": tool, "args": arguments},
            headers=bearer(token or self.ada.owner.token),
        )


@contextmanager
def open_target(directory: Path, urls: DatabaseUrls, **environment: str) -> Iterator[Target]:
    """Start a server with the two tenants; kill it afterwards. ``environment`` is added to its own."""
    node = f"redteam-{secrets.token_hex(4)}"
    options = {
        "TOOLCRIB_NODE_NAME": node,
        "TOOLCRIB_OPEN_REGISTRATION": "true",
        "TOOLCRIB_AUDIT_SEAL_INTERVAL_SECONDS": "10",
        **environment,
    }
    with (
        started_server(directory, urls, **options) as server,
        httpx2.Client(base_url=f"{server.origin}/api/v1", trust_env=False, timeout=PATIENCE) as http,
    ):
        server.node = node
        document = http.get("/openapi.json").json()
        ada, mallory = (furnish(http, register(http, name), name) for name in (f"{MARK}-ada", "mallory"))
        yield Target(directory, server, http, document, ada, mallory)


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def register(http: httpx2.Client, name: str) -> Login:
    person = {"email": f"{name}-{secrets.token_hex(4)}@example.com", "password": PASSWORD}
    id_ = made(http.post("/auth/register", json=person))["id"]
    login = made(http.post("/auth/login", json=person))
    # A login sets cookies, which no other person may send.
    http.cookies.clear()
    return Login(id_, person["email"], login["access_token"], login["refresh_token"])


def furnish(http: httpx2.Client, owner: Login, mark: str) -> Tenant:
    """Create a workspace with one of everything, over the API."""
    headers = owner.headers
    workspace = made(http.post("/workspaces", json={"name": mark}, headers=headers))["id"]
    base = f"/workspaces/{workspace}"

    def post(path: str, body: Any = None, token: str = owner.token) -> Any:
        return made(http.post(f"{base}{path}", json=body, headers=bearer(token)))

    def call(tool: str, token: str = owner.token, /, **args: Any) -> dict[str, Any]:
        result: dict[str, Any] = post("/tools", {"tool": tool, "args": args}, token)["result"]
        assert not result.get("is_error"), result
        return result

    rules = f"# {mark}\ntrust: supervised\ntool_permissions: {{write: {{allowed: true}}}}\n"
    agent = post("/agents", {"name": mark, "definition": rules})["id"]
    agent_key = post(f"/agents/{agent}/keys", {"name": mark})["secret"]
    key = made(http.post("/api-keys", json={"name": mark}, headers=headers))
    login = made(http.get("/auth/logins", headers=headers))["items"][0]["id"]
    first = call("write", path="/secret.txt", content=f"{mark} one\n")
    second = call("write", path="/secret.txt", content=f"{mark} two\n", overwrite=True)
    call("plan_write", path="/plans/secret.plan", title=mark, content=mark)
    process = call("bash_start", command=f"echo {mark}; sleep 600")
    question = call("ask_user", questions=[{"name": "name", "question": mark, "schema": {"type": "string"}}])
    granted, waiting = (call("write", agent_key, path=f"/{name}.txt", content=mark) for name in ("granted", "waiting"))
    approval = made(http.get(f"{base}/paused-calls/{granted['pause_id']}", headers=headers))
    always = {"approved": True, "scope": "always", "rule": approval["suggested_rule"]}
    always["arguments_sha256"] = approval["arguments_sha256"]
    post(f"/paused-calls/{granted['pause_id']}/decision", always)
    [grant] = made(http.get(f"{base}/grants", headers=headers))["items"]
    server = post("/mcp-servers", {"name": mark, "url": f"https://mcp.example.com/{mark}", "secrets": {"X-Key": mark}})
    invitation = post("/invitations", {"email": f"{mark}@example.com", "role": "viewer"})
    # A requested name is repeated in the response, so it has no mark.
    archive = package_of(name=f"package-{secrets.token_hex(4)}", files={f"{mark}.md": mark})
    package = made(http.post(f"{base}/packages", content=archive, headers=headers))["name"]
    at_new_year = {"name": mark, "cron": "0 0 1 1 *", "agent_id": agent, "message": mark}
    schedule = post("/schedules", at_new_year)["id"]
    session = post("/sessions", {"title": mark, "agent_id": agent})["id"]
    run = post(f"/sessions/{session}/messages", {"text": mark})
    return Tenant(
        owner,
        {
            "workspace_id": workspace,
            "user_id": owner.id,
            "agent_id": agent,
            "key_id": key["key"]["id"],
            "login_id": login,
            "file_id": first["file_id"],
            "process_id": process["metadata"]["processId"],
            "version_id": second["version_id"],
            "from_version": first["version_id"],
            "to_version": second["version_id"],
            "call_id": waiting["call_id"],
            "pause_id": waiting["pause_id"],
            "grant_id": grant["id"],
            "question_id": question["question_id"],
            "run_id": run["id"],
            "provider": "anthropic",
            "session_id": session,
            "server_id": server["id"],
            "invitation_id": invitation["id"],
            "package_name": package,
            "schedule_id": schedule,
        },
        key["secret"],
        agent_key,
    )


def made(response: httpx2.Response) -> Any:
    assert response.is_success, (str(response.request.url), response.status_code, response.text[:2000])
    return response.json() if response.content else None
