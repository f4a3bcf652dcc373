"""Attempts of a request with an ``Idempotency-Key`` that fail, are overtaken, or are undone."""

import asyncio
from typing import Any

import httpx2
import pytest

from tests.integration.api.accounts import (
    Someone,
    bearer,
    code_of,
    keyed,
    sessions_of,
)
from toolcrib.api.api_services import ApiServices
from toolcrib.api.call_retries import execute_once
from toolcrib.core.callers import Caller
from toolcrib.core.errors import Conflict, Interrupted, KeyInUse, Overloaded, Quarantined, ToolcribError
from toolcrib.core.idempotency import EffectKind, RequestClaim, claimed_by
from toolcrib.core.ids import CallId, ProcessId, WorkspaceId, new_id
from toolcrib.core.tool_calls import Outcome, OutcomeState, ToolCall
from toolcrib.storage.database import OperationalError, Tenant
from toolcrib.storage.idempotency_keys import IdempotencyKeyStore


@pytest.mark.parametrize("others", [["done"], ["released"], ["released", "done"]], ids="-".join)
async def test_attempt_that_is_overtaken_commits_nothing(
    client: httpx2.AsyncClient, ada: Someone, services: ApiServices, monkeypatch: pytest.MonkeyPatch, others: list[str]
) -> None:
    """A process that was frozen before its effect, and thaws when another one has answered the retries."""
    headers, body, endings = keyed(ada), {"name": "ci"}, iter(others)
    create, frozen, thawed = services.keys.create, asyncio.Event(), asyncio.Event()

    async def freeze(*given: Any, **options: Any) -> Any:
        if not frozen.is_set():
            frozen.set()
            await thawed.wait()
        elif next(endings) == "released":
            raise Conflict("This attempt has no effect.")
        return await create(*given, **options)

    monkeypatch.setattr(services.keys, "create", freeze)
    first = asyncio.create_task(client.post("/api-keys", headers=headers, json=body))
    await frozen.wait()
    monkeypatch.setattr(services.idempotency_keys, "_process_id", ProcessId(new_id()))
    answers = [await client.post("/api-keys", headers=headers, json=body) for _ in others]
    thawed.set()

    assert [answer.status_code for answer in answers] == [201 if one == "done" else 409 for one in others]
    assert code_of(await first) == (409, "IDEMPOTENCY_KEY_IN_USE")
    assert len((await client.get("/api-keys", headers=ada.headers)).json()["items"]) == others.count("done")


async def claim_of(services: ApiServices, person: Someone, key: bytes = b"k") -> RequestClaim:
    """Claim a key as another process would, so that it is taken from the one before."""
    keys = IdempotencyKeyStore(services.idempotency_keys._database, process_id=ProcessId(new_id()), lease=1)
    claimed = await keys.claim(
        person.id,
        person.id,
        token_version=None,
        key_hash=key,
        request_hashes=[b"r"],
        kind=EffectKind.CALL,
        at_work=False,
    )
    return claimed.claim


@pytest.fixture
def calls_after_an_interruption(services: ApiServices, monkeypatch: pytest.MonkeyPatch) -> list[CallId]:
    """The ids of calls that are made again: the first call ended without an effect."""
    lost: list[CallId] = []
    made: list[CallId] = []

    async def after_crash(_: ToolCall, caller: Caller) -> Outcome | None:
        lost[:] = lost or [caller.call_id]
        error = Interrupted("The server stopped.")
        return Outcome(caller.call_id, OutcomeState.DONE, None, error) if caller.call_id in lost else None

    async def execute(_: ToolCall, caller: Caller, **__: Any) -> Outcome:
        made.append(caller.call_id)
        return Outcome(caller.call_id, OutcomeState.DONE, {})

    monkeypatch.setattr(services.lost_calls, "after_crash", after_crash)
    monkeypatch.setattr(services.executor, "execute", execute)
    return made


async def test_overtaken_attempt_does_not_repeat_an_interrupted_call(
    services: ApiServices, ada: Someone, workspace_id: WorkspaceId, calls_after_an_interruption: list[CallId]
) -> None:
    await claim_of(services, ada)
    overtaken, newest = await claim_of(services, ada), await claim_of(services, ada)
    call, caller = ToolCall("write", {}), Caller(workspace_id=workspace_id, user_id=ada.id)

    with claimed_by(overtaken), pytest.raises(KeyInUse):
        await execute_once(services, call, caller)
    with claimed_by(newest):
        await execute_once(services, call, caller)

    assert calls_after_an_interruption == [newest.effect_id]
    assert newest.effect_id != overtaken.effect_id


async def test_interrupted_attachment_has_the_same_new_id_in_all_attempts(
    services: ApiServices, ada: Someone, workspace_id: WorkspaceId, calls_after_an_interruption: list[CallId]
) -> None:
    await claim_of(services, ada)
    for _ in range(2):
        with claimed_by(await claim_of(services, ada)):
            await execute_once(
                services, ToolCall("attach", {}), Caller(workspace_id=workspace_id, user_id=ada.id), part=0
            )

    assert len(calls_after_an_interruption) == 2
    assert len(set(calls_after_an_interruption)) == 1


@pytest.mark.parametrize("error", [Overloaded("Full."), Conflict("Not now.")], ids=["503", "409"])
async def test_session_that_was_undone_can_be_created_with_the_same_key(
    client: httpx2.AsyncClient, ada: Someone, workspace_id: WorkspaceId, services: ApiServices, error: ToolcribError
) -> None:
    path, headers = f"/workspaces/{workspace_id}/sessions", keyed(ada)

    async def workflow(*_: Any) -> Any:
        return "a document", None

    async def begin(*_: Any) -> None:
        raise error

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(services.packages, "workflow", workflow)
        patched.setattr(services.packages, "begin", begin)
        failed = await client.post(path, headers=headers, json={"package": "a"})
        begun: list[Any] = []
        patched.setattr(services.packages, "begin", _noting(begun))
        made = await client.post(path, headers=headers, json={"package": "a"})

    assert code_of(failed)[1] == error.code
    assert made.status_code == 201, made.text
    assert len(begun) == 1
    assert [one["id"] for one in await sessions_of(client, ada, workspace_id)] == [made.json()["id"]]


def _noting(calls: list[Any]) -> Any:
    async def note(*given: Any) -> None:
        calls.append(given)

    return note


@pytest.mark.parametrize(
    "error", [Overloaded("Full."), Quarantined("Damaged.", retry_after=1)], ids=["overloaded", "quarantined"]
)
async def test_package_whose_installation_was_not_begun_can_be_installed_with_the_same_key(
    client: httpx2.AsyncClient, ada: Someone, workspace_id: WorkspaceId, services: ApiServices, error: ToolcribError
) -> None:
    path, headers = f"/workspaces/{workspace_id}/packages", keyed(ada)

    async def install(*_: Any, **__: Any) -> Any:
        raise error

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(services.packages, "install", install)
        answers = [await client.post(path, headers=headers, content=b"an archive") for _ in range(2)]

    assert [code_of(answer)[1] for answer in answers] == [error.code] * 2


async def test_answer_that_does_not_fit_does_not_use_up_its_key(
    client: httpx2.AsyncClient, ada: Someone, workspace_id: WorkspaceId, services: ApiServices
) -> None:
    """Nothing is locked before the answer is valid: a lock alone would count as an effect."""
    tenant = Tenant(workspace_id, ada.id)
    agent = await services.agents.create(tenant, name="bot", definition="tool_permissions: {ask_user: {allowed: true}}")
    _, secret = await services.keys.create_for_agent(tenant, agent.id, name="k", expires_at=None)
    item = {"name": "colour", "question": "Which?", "schema": {"type": "string", "enum": ["red", "blue"]}}
    call = {"tool": "ask_user", "args": {"questions": [item]}}
    asked = await client.post(f"/workspaces/{workspace_id}/tools", headers=bearer(secret), json=call)
    question = asked.json()["result"]["question_id"]
    path, headers = f"/workspaces/{workspace_id}/paused-calls/{question}/answers", keyed(ada)

    wrong = await client.post(path, headers=headers, json={"answers": {"colour": "green"}})
    right = await client.post(path, headers=headers, json={"answers": {"colour": "red"}})

    assert code_of(wrong) == (400, "VALIDATION_ERROR")
    assert right.status_code == 200, right.text


async def test_retry_that_fails_before_it_runs_gives_its_claim_back(
    client: httpx2.AsyncClient,
    ada: Someone,
    workspace_id: WorkspaceId,
    services: ApiServices,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path, headers, body = f"/workspaces/{workspace_id}/sessions", keyed(ada), {"title": "a"}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(services.sessions, "create", _unavailable)
        patched.setattr(services.idempotency_keys, "release", _unavailable)
        failed = await client.post(path, headers=headers, json=body)
    monkeypatch.setattr(services.idempotency_keys, "_process_id", ProcessId(new_id()))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(services.workspaces, "get", _unavailable)
        refused = await client.post(path, headers=headers, json=body)
    made = await client.post(path, headers=headers, json=body)

    assert failed.status_code == refused.status_code == 503
    assert made.status_code == 201


async def test_key_can_be_used_again_after_an_outage_in_which_its_attempt_ended(
    client: httpx2.AsyncClient, ada: Someone, workspace_id: WorkspaceId, services: ApiServices
) -> None:
    path, headers, body = f"/workspaces/{workspace_id}/sessions", keyed(ada), {"title": "a"}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(services.sessions, "create", _unavailable)
        for end in ("release", "abandon", "save"):
            patched.setattr(services.idempotency_keys, end, _unavailable)
        failed = await client.post(path, headers=headers, json=body)
    made = await client.post(path, headers=headers, json=body)
    with pytest.MonkeyPatch.context() as patched:
        for end in ("release", "abandon", "save"):
            patched.setattr(services.idempotency_keys, end, _unavailable)
        other = keyed(ada)
        first = await client.post(path, headers=other, json=body)
    again = await client.post(path, headers=other, json=body)

    assert (failed.status_code, made.status_code) == (503, 201)
    assert "with the same Idempotency-Key" in failed.json()["error"]
    assert (first.status_code, again.status_code, again.json()["id"]) == (201, 201, first.json()["id"])
    assert len(await sessions_of(client, ada, workspace_id)) == 2


async def _unavailable(*_: Any, **__: Any) -> Any:
    raise OperationalError("The database is away.")
