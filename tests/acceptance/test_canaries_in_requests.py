"""No secret and no content of a request is in the log, the metrics or the traces.

Every route of the OpenAPI document and every tool is used, so that a new one is covered too. The server logs its own
lines of all levels, and libraries' warnings; no setting adds more.
"""

import base64
import json
import random
import secrets
from contextlib import suppress
from typing import Any

import httpx2
import pytest
import requests
from schemathesis import Case
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from tests.acceptance.canaries import Canaries
from tests.acceptance.observed_server import ObservedServer, filled, planted
from tests.adversarial.test_tenants import BODIES, QUERIES, calls_of_tools
from tests.redteam.generated import SEED, attack_operations, describe_tools
from tests.redteam.target import bearer, furnish, made
from tests.wait_until import PATIENCE

pytestmark = pytest.mark.xdist_group("canaries")

# Those that end the login or delete the workspace of the requests after them come last.
LAST = ["logout", "end_login", "change_password", "end_other_logins", "delete_workspace"]
# What a client may choose and is not logged; the id of a request and the address of a client are.
HEADERS = ("Authorization", "Cookie", "Idempotency-Key", "User-Agent", "Referer", "Origin", "Accept", "Last-Event-ID",
           "Content-Type", "X-API-Key", "Sec-WebSocket-Protocol", "Proxy-Authorization")  # fmt: skip
EACH = 2


@pytest.mark.long
def test_every_route_with_valid_and_broken_requests(observed: ObservedServer) -> None:
    target, canaries, choose = observed.target, observed.canaries, random.Random(SEED)
    used: set[str] = set()

    with requests.Session() as session:
        session.trust_env = False

        def attack(name: str, case: Case[Any]) -> None:
            used.add(name)
            for parameter in case.path_parameters:
                case.path_parameters[parameter] = target.mallory.ids.get(parameter, "x")
            case.query = {name: "false" if name == "follow" else value for name, value in case.query.items()}
            case.query |= {
                one: canaries.plant(f"the query of {name}") for one in ("token", choose.choice(["q", "path"]))
            }
            case.body = planted(case.body, canaries, f"the body of {name}", choose)
            header = choose.choice(HEADERS)
            headers = target.mallory.owner.headers | {header: canaries.plant(f"the header {header} of {name}")}
            case.headers.clear()
            case.cookies.clear()
            case.call(base_url=target.server.origin, session=session, headers=headers, timeout=PATIENCE)

        attack_operations(target.document, attack, each=EACH, without=frozenset(LAST))

    assert used | set(LAST) == operations(target.document).keys()


def test_every_route_as_it_is_meant(observed: ObservedServer) -> None:
    """A new person is used up: the last requests end their login and delete their workspace."""
    target, canaries = observed.target, observed.canaries
    person, password = observed.register("grace"), canaries.plant("a password")
    grace = furnish(target.http, person, "grace")
    canaries.keep_secret("an agent's key", grace.agent_key)
    answers: dict[str, int] = {}
    routes = operations(target.document)

    for name in sorted(routes, key=lambda name: (LAST.index(name) if name in LAST else -1, name)):
        method, path = routes[name]
        body = {
            "register": {"email": "katherine@example.com", "password": password, "full_name": "intruder"},
            "login": {"email": person.email, "password": password},
            "change_password": {"current_password": password, "new_password": "intruder"},
            "reset_password": {"token": "intruder", "password": password},
            "refresh": {"refresh_token": "intruder"},
            "use_link": {"link": "intruder"},
            "accept_invitation": {"token": "intruder"},
            "store_credentials": {"secret": "intruder", "check": True, "base_url": f"{observed.model.url}/v1"},
        }.get(name, BODIES.get(name))
        ids = grace.ids | ({"pause_id": grace.ids["question_id"]} if "answers" in path else {})
        sent = filled(body, canaries, f"the body of {name}", person.email)
        answered = target.http.request(
            method, path.format(**ids), json=sent, params=QUERIES.get(name), headers=person.headers
        )
        target.http.cookies.clear()
        answers[name] = answered.status_code
        for secret in ("secret", "ticket", "link", "token", "access_token", "refresh_token"):
            value = answered.json().get(secret) if answered.text.startswith("{") else None
            if isinstance(value, str):
                canaries.keep_secret(f"the {secret} of {name}", value)

    assert all(status < 500 for status in answers.values()), answers
    # Not only errors.
    assert sum(status < 300 for status in answers.values()) > len(answers) / 2, answers


@pytest.mark.long
def test_every_tool_with_valid_and_broken_arguments(observed: ObservedServer) -> None:
    target, canaries, choose = observed.target, observed.canaries, random.Random(SEED)
    tools = made(target.http.get(f"{target.mallory.workspace}/tools", headers=target.mallory.owner.headers))
    names = {tool["name"] for tool in tools}
    calls = {
        **calls_of_tools(target.mallory.ids),
        **{name: {"text": "intruder"} for name in names if name.startswith("raise_")},
    }

    def call(name: str, arguments: Any, token: str) -> httpx2.Response:
        body = json.dumps({"tool": name, "args": arguments}, default=repr)
        headers = bearer(token) | {"Content-Type": "application/json"}
        return target.http.post(f"{target.mallory.workspace}/tools", content=body, headers=headers)

    assert calls.keys() == names
    succeeded = 0
    for token in (target.mallory.owner.token, target.mallory.agent_key):
        for name, arguments in calls.items():
            answered = call(name, filled(arguments, canaries, f"an argument of {name}"), token)
            succeeded += answered.json().get("success", False)

    def attack(name: str, case: Case[Any]) -> None:
        call(name, planted(case.body, canaries, f"an argument of {name}", choose), target.mallory.owner.token)

    attack_operations(describe_tools(tools), attack, each=EACH)

    assert succeeded > len(calls) / 2
    counted = observed.metrics()
    assert all(f'tool="{name}"' in counted for name in names), "The metrics that were searched are not of these calls."
    spans = {"execute_tool write", "execute_tool raise_error"}
    observed.collector.wait_for(lambda: spans <= {span.name for span in observed.collector.spans})


def test_websockets_of_both_protocols(observed: ObservedServer) -> None:
    target, canaries = observed.target, observed.canaries
    ticket = made(target.http.post(f"{target.mallory.workspace}/tickets", headers=target.mallory.owner.headers))[
        "ticket"
    ]
    canaries.keep_secret("a ticket", ticket)
    session = target.mallory.ids["session_id"]
    at = f"{target.server.origin.replace('http', 'ws')}/api/v1{target.mallory.workspace}/ws"

    def converse(url: str, headers: dict[str, str], *messages: Any) -> None:
        with connect(url, additional_headers=headers, proxy=None) as connection, suppress(ConnectionClosed):
            for message in messages:
                connection.send(message if isinstance(message, str | bytes) else json.dumps(message))
                connection.recv(timeout=PATIENCE)

    def canary() -> str:
        return canaries.plant("a message of a WebSocket")

    tool = {"conversationId": session, "tool": "write", "args": {"path": "/ws.txt", "content": canary()}}
    converse(
        f"{at}?{canary()}={canary()}",
        {},
        {"type": "auth", "payload": {"ticket": ticket}},
        {"type": "chat:tool-call", "payload": tool},
        {"type": "chat:send", "payload": {"conversationId": session, "text": canary()}},
        {"type": canary(), "payload": {canary(): canary()}, "id": canary()},
        {"type": "chat:tool-approve", "payload": {"reason": canary()}},
        f'{{"type": "{canary()}',
        canary().encode(),
    )
    converse(at, bearer(target.mallory.owner.token) | {"Cookie": canary()}, {"type": "prompt", "text": canary()})
    for introduction in ({"type": "auth", "payload": {"token": canary()}}, {"type": canary()}, canary()):
        converse(at, {}, introduction)


def test_clients_of_mcp_and_openai(observed: ObservedServer) -> None:
    target, canaries = observed.target, observed.canaries
    origin, workspace = target.server.origin, target.mallory.ids["workspace_id"]
    # The requests to every route may have revoked the first one.
    key = made(target.http.post("/api-keys", json={"name": "clients"}, headers=target.mallory.owner.headers))["secret"]
    canaries.keep_secret("another API key", key)
    headers = bearer(key) | {"Accept": "application/json, text/event-stream"}

    def ask(path: str, body: Any) -> int:
        where = f"a request to {path}"
        sent = filled(body, canaries, where) if not isinstance(body, bytes) else body
        text = sent if isinstance(sent, bytes) else json.dumps(sent).encode()
        kind = headers | {"Content-Type": "application/json"}
        url = f"{origin}{path}"
        return httpx2.post(url, headers=kind, content=text, timeout=PATIENCE, trust_env=False).status_code

    def rpc(method: str, **params: Any) -> dict[str, Any]:
        about = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}
        return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {"_meta": about}}

    client = {"name": "intruder", "version": "intruder"}
    greeting = rpc("initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo=client)
    assert ask(f"/mcp/{workspace}", greeting) == 200
    calls = {"write": {"path": "/mcp.txt", "content": "intruder"}, "raise_error": {"text": "intruder"}, "intruder": {}}
    for name, arguments in calls.items():
        ask(f"/mcp/{workspace}", rpc("tools/call", name=name, arguments=arguments))
    ask(f"/mcp/{workspace}", rpc("intruder", intruder="intruder"))
    ask(f"/mcp/{workspace}", canaries.plant("a broken body").encode())
    for model in (target.mallory.ids["agent_id"], "intruder"):
        messages = [{"role": "system", "content": "intruder"}, {"role": "user", "content": "work intruder"}]
        ask("/v1/chat/completions", {"model": model, "messages": messages, "user": "intruder"})
    ask("/v1/chat/completions", {"model": 1, "messages": [{"role": "intruder", "intruder": "intruder"}]})
    ask("/v1/responses", {"model": "intruder", "input": "intruder"})


@pytest.mark.parametrize("before", [b"", b"a", b"ab", b"abc"])
def test_canaries_and_secrets_are_found_in_every_form(before: bytes) -> None:
    canaries = Canaries()
    planted_here = canaries.plant("here").encode()
    secret = canaries.keep_secret("a key", f"tck_{secrets.token_urlsafe(32)}").encode()
    for value, where in ((planted_here, "here"), (secret, "a key")):
        for form in (
            before + value,
            before + json.dumps({"a": f'"{value.decode()}\n'}).encode(),
            before + value.hex().encode(),
            base64.b64encode(before + value + b"/"),
            base64.urlsafe_b64encode(before + value),
        ):
            assert canaries.found_in(form), (where, form)
    assert canaries.found_in(planted_here[:12]) != []
    assert canaries.found_in(b"nothing") == []


def operations(document: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """The method and path of every operation."""
    return {
        operation["operationId"]: (method.upper(), path.removeprefix("/api/v1"))
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }
