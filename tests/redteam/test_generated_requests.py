"""Thousands of generated requests to every route and every tool. None gets a 5xx."""

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
import requests
from schemathesis import Case

from tests.redteam.attacks import Attacks
from tests.redteam.generated import SEED, attack_operations, describe_tools
from tests.redteam.target import Target, made
from tests.wait_until import PATIENCE

# Requests that end the attacking session or delete the attacked workspace: nothing after them would be tested.
ENDS = frozenset({"logout", "end_login", "end_other_logins", "change_password", "delete_workspace"})
# In the gate and in the campaign: with some 70 routes and 40 tools, 300 and 10,000 requests, 180 and 5,000 calls.
ROUTES = [pytest.param(4, id="quick"), pytest.param(144, id="campaign", marks=pytest.mark.redteam)]
TOOLS = [pytest.param(4, id="quick"), pytest.param(128, id="campaign", marks=pytest.mark.redteam)]
NOT_OURS = {"PROVIDER_ERROR", "TIMED_OUT"}
JSON = {"Content-Type": "application/json"}


@pytest.fixture
def session() -> Iterator[requests.Session]:
    with requests.Session() as opened:
        opened.trust_env = False
        yield opened


@pytest.mark.parametrize("each", ROUTES)
def test_no_generated_request_gets_a_5xx(
    target: Target, attacks: Attacks, session: requests.Session, each: int
) -> None:
    choose = random.Random(SEED)

    def attack(name: str, case: Case[Any]) -> None:
        _aim(case, target.mallory.ids, choose)
        if name == "stream_events":
            # It would stay open for events that never come.
            case.query = case.query | {"follow": "false"}
        answer = case.call(
            base_url=target.server.origin, session=session, headers=target.mallory.owner.headers, timeout=PATIENCE
        )
        attacks.judge(
            name, held=is_intended(answer), how=(answer.status_code, answer.text[:300], case.as_curl_command()[:600])
        )

    attack_operations(target.document, attack, each=each, without=ENDS)


@pytest.mark.parametrize("each", TOOLS)
def test_no_generated_tool_call_gets_a_5xx(
    target: Target, attacks: Attacks, session: requests.Session, each: int
) -> None:
    choose = random.Random(SEED)
    headers = target.mallory.owner.headers
    url = f"{target.server.origin}/api/v1{target.mallory.workspace}/tools"
    tools = made(target.http.get(f"{target.mallory.workspace}/tools", headers=headers))

    def attack(name: str, case: Case[Any]) -> None:
        arguments = _aimed(case.body, target.mallory.ids, choose)
        body = json.dumps({"tool": name, "args": arguments}, default=repr)
        answer = session.post(url, data=body, headers=headers | JSON, timeout=PATIENCE)
        attacks.judge(name, held=is_intended(answer), how=(answer.status_code, answer.text[:300], arguments))

    attack_operations(describe_tools(tools), attack, each=each)


def is_intended(answer: Any) -> bool:
    """Return whether a response is free of server errors. A model that does not respond is not the server's error."""
    return answer.status_code < 500 or answer.json()["code"] in NOT_OURS


def _aim(case: Case[Any], ids: dict[str, str], choose: random.Random) -> None:
    """Insert existing ids into most requests: an unknown workspace is rejected before any other check."""
    for name in case.path_parameters:
        if name in ids and choose.random() < (0.95 if name == "workspace_id" else 0.7):
            case.path_parameters[name] = ids[name]


def _aimed(arguments: Any, ids: dict[str, str], choose: random.Random) -> Any:
    """Insert existing paths and ids into half of the calls."""
    if not isinstance(arguments, dict) or choose.random() < 0.5:
        return arguments
    known = ids | {
        "path": "/secret.txt",
        "source": "/secret.txt",
        "file_path": "/secret.txt",
        "paths": ["/secret.txt"],
        "from_version": ids["from_version"],
        "session_id": ids["session_id"],
        # Nothing comes, and each call would wait for half a minute.
        "wait": 0,
    }
    return {name: known.get(name, value) for name, value in arguments.items()}
