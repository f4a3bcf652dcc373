"""What `explain` answers for a call is what the gate then does with it: for agents, sessions, grants, hosts and MCP."""

import json
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import httpx2
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.integration.api.accounts import Newcomer, Someone, bearer
from toolcrib.api.api_services import ApiServices
from toolcrib.core.agents import AgentRules, TrustLevel
from toolcrib.core.callers import WorkspaceRole
from toolcrib.core.ids import AgentId, WorkspaceId, new_id
from toolcrib.core.mcp_servers import McpTool, McpTransport
from toolcrib.policy.agent_definition import render_definition
from toolcrib.storage.audit import AuditFilter
from toolcrib.storage.database import Tenant

_TOOLS = ("read", "write", "edit", "cat", "bash", "mcp:far/send", "mcp:far/look", "undo", "read_result")
_SCHEMA = {"type": "object", "properties": {"to": {"type": "string"}}}


@dataclass(frozen=True)
class Call:
    """A call. ``changes``: it changes a file if it runs, so an approval of its effect has something to show."""

    tool: str
    args: dict[str, Any]
    changes: bool = False

    def body(self, **more: Any) -> dict[str, Any]:
        """The request, with a new text for each call that changes something."""
        args = {name: f"{value} {new_id()}" if value == "new" else value for name, value in self.args.items()}
        return {"tool": self.tool, "args": args, **more}


_CALLS = [
    Call("read", {"path": "/old.txt"}),
    Call("read", {"path": "/.env"}),
    Call("cat", {"paths": ["/old.txt", "/src/old.txt"]}),
    Call("write", {"path": "/src/made.txt", "content": "new", "overwrite": True}, changes=True),
    Call("write", {"path": "/made.txt", "content": "new", "overwrite": True}, changes=True),
    Call("write", {"path": "/next.plan", "content": "new", "overwrite": True}, changes=True),
    Call("write", {"path": "/.vscode/tasks.json", "content": "new", "overwrite": True}, changes=True),
    Call("write", {"path": "/.env", "content": "new", "overwrite": True}, changes=True),
    Call("edit", {"path": "/old.txt", "old_string": "nowhere", "new_string": "x"}),
    Call("bash", {"command": "true"}),
    Call("bash", {"command": "date +%N > stamp.txt"}, changes=True),
    Call("mcp:far/send", {"to": "a"}),
    Call("mcp:far/look", {"to": "b"}),
    Call("undo", {"last": "call", "dry_run": True}),
]
_call = st.sampled_from(_CALLS)

_permission = st.fixed_dictionaries(
    {"allowed": st.booleans() | st.just(True)},
    optional={"paths": st.sampled_from([["src/**"], ["**"], ["**", "!src/**"]])},
)
_shell = st.fixed_dictionaries(
    {"allowed": st.just(True)},
    optional={"approve": st.sampled_from(["command", "effect"]), "hosts": st.just(["example.org"])},
)
_permissions = st.dictionaries(st.sampled_from(_TOOLS), _permission, max_size=8).flatmap(
    lambda some: st.none() | _shell.map(lambda shell: {**some, "bash": shell}) | st.just(some)
)
_everything = {name: {"allowed": True} for name in _TOOLS}
_trust = st.sampled_from(TrustLevel)


def _everything_with(shell: dict[str, Any]) -> dict[str, Any]:
    return {**_everything, "bash": shell}


_rules = st.fixed_dictionaries(
    {
        "trust": _trust,
        "tool_permissions": st.just(_everything) | _shell.map(_everything_with) | _permissions,
        "toolsets": st.sampled_from([["workspace", "shell", "mcp:far"], ["workspace"], ["history"]]),
        "unprotected_paths": st.sampled_from([[], [".env"]]),
    }
)


@st.composite
def _phased(draw: st.DrawFn) -> dict[str, Any]:
    """Rules, sometimes with their permissions in two phases."""
    rules = draw(_rules)
    permissions = rules["tool_permissions"]
    if permissions is None or draw(st.booleans()):
        return rules
    narrow = {"name": "look", "tool_permissions": {"read": {"allowed": True}}}
    phases = draw(st.permutations([narrow, {"name": "work", "tool_permissions": permissions}]))
    return {**rules, "tool_permissions": None, "phases": phases}


_session = st.fixed_dictionaries(
    {"mode": st.sampled_from(["build", "build", "plan"])},
    optional={"trust": _trust, "phase": st.sampled_from(["look", "work"])},
)
_grants = st.lists(st.tuples(_call, st.sampled_from(["session", "always"])), max_size=2)

_often = settings(
    max_examples=20,
    deadline=None,
    database=None,
    # Shrinking a failure would take minutes: every step creates an agent and a session.
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@dataclass(frozen=True)
class Place:
    """A workspace with files and an MCP server that nobody can reach."""

    client: httpx2.AsyncClient
    services: ApiServices
    ada: Someone
    tenant: Tenant

    @property
    def address(self) -> str:
        return f"/workspaces/{self.tenant.workspace_id}"

    async def explained(
        self, call: dict[str, Any], who: dict[str, str], asking: Someone | None = None
    ) -> dict[str, Any]:
        headers = (asking or self.ada).headers
        found = await self.client.post(f"{self.address}/explain", json=call | who, headers=headers)
        assert found.status_code == 200, found.text
        return dict(found.json())

    async def called(self, call: dict[str, Any], headers: dict[str, str]) -> tuple[httpx2.Response, str, str]:
        """Make the call. Returns the response, and the decision and the rule as they were recorded."""
        response = await self.client.post(f"{self.address}/tools", json=call, headers=headers)
        if response.status_code == 202:
            pause = f"{self.address}/paused-calls/{response.json()['result']['pause_id']}"
            return response, "ask", (await self.client.get(pause, headers=self.ada.headers)).json()["rule"]
        page = await self.services.audit.page(self.tenant, before=None, limit=1, wanted=AuditFilter(kind="call"))
        return response, page.records[0].decision, page.records[0].rule


@pytest.fixture
async def place(client: httpx2.AsyncClient, services: ApiServices, ada: Someone, workspace_id: WorkspaceId) -> Place:
    tenant = Tenant(workspace_id, ada.id)
    place = Place(client, services, ada, tenant)
    for path in ("/old.txt", "/src/old.txt", "/.env"):
        made = {"tool": "write", "args": {"path": path, "content": "old\n"}}
        assert (await client.post(f"{place.address}/tools", json=made, headers=ada.headers)).status_code == 200
    box = services.toolbox
    server = await box.rows.create(
        tenant, name="far", transport=McpTransport.HTTP, url="https://127.0.0.1:9/mcp", safe_tools=["look"]
    )
    offered = [McpTool(name, f"{name} something", _SCHEMA, "0" * 64) for name in ("send", "look")]
    await box.rows.save_offered(server, offered, None)
    await box.rows.approve(tenant, await box.rows.get(tenant, server.id))
    return place


@given(
    rules=_phased(),
    session=_session,
    ceiling=st.none() | _trust,
    grants=_grants,
    calls=st.lists(_call, min_size=1, max_size=5),
)
@_often
async def test_explanation_is_what_the_gate_does(
    place: Place,
    rules: dict[str, Any],
    session: dict[str, str],
    ceiling: TrustLevel | None,
    grants: list[tuple[Call, str]],
    calls: list[Call],
) -> None:
    agent_id, key, session_id = await new_session(place, rules, session, ceiling)
    for call, scope in grants:
        await granted(place, call.body(session_id=session_id), scope, bearer(key))

    for call in calls:
        for who in ({"session_id": session_id}, {"agent_id": agent_id}):
            body = call.body()
            said = await place.explained(body, who)
            real = body | ({"session_id": session_id} if "session_id" in who else {})
            response, decision, rule = await place.called(real, bearer(key))

            asked = response.status_code == 202
            assert (decision, rule) == (said["action"], said["rule"]), (said, response.text)
            assert asked == (said["action"] == "ask" and (said["asks_about"] == "call" or call.changes)), said
            if said["action"] == "deny":
                # `bash` says in its result why it was denied, others in an error.
                assert response.status_code >= 400 or response.json()["result"]["is_error"]
                assert json.dumps(said["reason"], ensure_ascii=False)[1:-1] in response.text
    # A person may have 200 keys; they are revoked with their agent.
    await place.services.agents.delete(place.tenant, AgentId(UUID(agent_id)))


async def new_session(
    place: Place, rules: dict[str, Any], session: dict[str, str], ceiling: TrustLevel | None
) -> tuple[str, str, str]:
    """Create an agent with a key and a session. Trust is set before the ceiling, which then lowers it."""
    await place.client.patch(place.address, json={"max_trust": None}, headers=place.ada.headers)
    definition = render_definition(AgentRules.model_validate(rules))
    services = place.services
    agent = await services.agents.create(place.tenant, name=f"agent {new_id()}", definition=definition)
    _, key = await services.keys.create_for_agent(place.tenant, agent.id, name="k", expires_at=None)
    wanted = {name: value for name, value in session.items() if name != "phase" or "phases" in rules}
    made = await place.client.post(
        f"{place.address}/sessions", json={"agent_id": str(agent.id), **wanted}, headers=place.ada.headers
    )
    assert made.status_code == 201, made.text
    await place.client.patch(place.address, json={"max_trust": ceiling}, headers=place.ada.headers)
    return str(agent.id), key, str(made.json()["id"])


async def granted(place: Place, call: dict[str, Any], scope: str, headers: dict[str, str]) -> None:
    """Make a call and, if a person is asked about it, approve it for later calls too, as far as that is possible."""
    response, _, _ = await place.called(call, headers)
    if response.status_code != 202:
        return
    address = f"{place.address}/paused-calls/{response.json()['result']['pause_id']}"
    shown = (await place.client.get(address, headers=place.ada.headers)).json()
    decision = {
        "approved": True,
        "scope": scope,
        "rule": shown["suggested_rule"],
        "arguments_sha256": shown["arguments_sha256"],
    }
    await place.client.post(f"{address}/decision", json=decision, headers=place.ada.headers)


async def test_after_an_always_grant_explain_no_longer_says_ask(place: Place) -> None:
    agent_id, key, session_id = await new_session(
        place, {"trust": "guided", "tool_permissions": _everything}, {"mode": "build"}, None
    )
    command = {"tool": "bash", "args": {"command": "true"}}
    before = await place.explained(command, {"session_id": session_id})
    await granted(place, {**command, "session_id": session_id}, "always", bearer(key))
    after = await place.explained(command, {"agent_id": agent_id})
    other = await place.explained({"tool": "bash", "args": {"command": "rm -r /"}}, {"agent_id": agent_id})

    assert (before["action"], before["asks_about"]) == ("ask", "call")
    assert after["action"] == "allow"
    assert after["rule"].startswith("grant.always:")
    assert (other["action"], other["rule"]) == ("ask", "trust.guided.dangerous")


async def test_a_viewer_is_told_that_the_role_is_missing(place: Place, newcomer: Newcomer) -> None:
    viewer = await newcomer()
    await place.services.workspaces.add_member(place.tenant, email=viewer.email, role=WorkspaceRole.VIEWER)
    writing = Call("write", {"path": "/made.txt", "content": "new"}).body()
    for call, action in ((writing, "deny"), (Call("read", {"path": "/old.txt"}).body(), "allow")):
        said = await place.explained(call, {}, asking=viewer)
        response, decision, rule = await place.called(call, viewer.headers)

        assert (said["action"], said["rule"]) == (decision, rule)
        assert said["action"] == action
        assert (response.status_code == 403) == (action == "deny")


async def test_a_definition_that_is_not_saved_is_explained_as_if_it_were(place: Place) -> None:
    definition = "trust: guided\ntool_permissions: {read: {allowed: true}, write: {allowed: true, paths: [src/**]}}"
    stored = await place.client.post(
        f"{place.address}/agents", json={"name": "stored", "definition": definition}, headers=place.ada.headers
    )
    before = await place.client.get(f"{place.address}/agents", headers=place.ada.headers)
    calls = [
        {"tool": "read", "args": {"path": "/old.txt"}},
        {"tool": "write", "args": {"path": "/src/new.txt", "content": "x"}},
        {"tool": "write", "args": {"path": "/new.txt", "content": "x"}},
        {"tool": "rm", "args": {"path": "/old.txt"}},
    ]
    for call in calls:
        drafted = await place.explained(call, {"definition": definition})
        saved = await place.explained(call, {"agent_id": stored.json()["id"]})
        for answer in (drafted, saved):
            del answer["agent"], answer["reason"]
        assert drafted == saved, call
    wider = definition.replace("guided", "autonomous").replace("src/**", "'**'")
    changed = await place.explained(calls[2], {"definition": wider, "agent_id": stored.json()["id"]})
    assert changed["action"] == "allow"
    after = await place.client.get(f"{place.address}/agents", headers=place.ada.headers)
    assert after.json() == before.json()

    wrong = calls[0] | {"definition": "trust: reckless"}
    refused = await place.client.post(f"{place.address}/explain", json=wrong, headers=place.ada.headers)
    assert (refused.status_code, refused.json()["code"]) == (400, "VALIDATION_ERROR")
