"""Every route of the API with every identity that has no access: none is admitted, nothing leaks, nothing changes.

The routes come from the OpenAPI document, so that a new one is attacked as soon as it exists.
"""

import httpx2
import pytest

from tests.adversarial.test_tenants import PUBLIC, Operation
from tests.redteam.attacks import Attacks
from tests.redteam.identities import DISABLED, LOGGED_OUT, Identity, identities
from tests.redteam.target import MARK, Target, bearer

# What an agent's own key may use: tools, results of its calls, and its pending approvals. A new route is not included.
AGENT_MAY = {
    "call_tool", "list_tools", "get_call", "cancel_call", "list_paused_calls", "get_paused_call", "get_run",
    "get_workspace", "list_proposed_changes",
}  # fmt: skip
# It revokes nothing that is still valid, so an access token of an ended login may use it until it expires.
AFTER_LOGOUT = {"logout"}


@pytest.fixture(scope="session")
def everyone(shared_target: Target) -> list[Identity]:
    return identities(shared_target)


def operations(target: Target) -> list[Operation]:
    return [
        Operation(operation["operationId"], method.upper(), path)
        for path, methods in target.document["paths"].items()
        for method, operation in methods.items()
        if operation["operationId"] not in PUBLIC
    ]


def test_no_route_admits_an_identity_without_access(target: Target, everyone: list[Identity], attacks: Attacks) -> None:
    before = _disk(target)
    for identity in everyone:
        for operation in operations(target):
            if identity.status == 403 and not operation.is_in_a_workspace:
                continue  # known people: these routes return their own data
            if identity.name in (LOGGED_OUT, DISABLED) and operation.name in AFTER_LOGOUT:
                continue
            answer = ask(target, operation, identity.headers)
            held = answer.status_code == identity.status and MARK not in answer.text
            attacks.judge(f"{identity.name} → {operation.name}", held=held, how=(answer.status_code, answer.text[:300]))
    assert _disk(target) == before


def test_agents_own_key_cannot_use_routes_for_people(target: Target, attacks: Attacks) -> None:
    for operation in operations(target):
        if operation.name in AGENT_MAY:
            continue
        answer = ask(target, operation, bearer(target.ada.agent_key))
        attacks.judge(operation.name, held=answer.status_code == 403, how=(answer.status_code, answer.text[:300]))


def ask(target: Target, operation: Operation, headers: dict[str, str]) -> httpx2.Response:
    asked = operation.request(target.ada.ids, target.mallory.owner.email)
    return target.http.request(**asked | {"url": f"{target.server.origin}{asked['url']}"}, headers=headers)


def _disk(target: Target) -> dict[str, bytes]:
    return {str(path): path.read_bytes() if path.is_file() else b"" for path in target.project.rglob("*")}
