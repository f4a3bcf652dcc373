"""Requests that an attacker chose for their cost. None of them may block the loop, for any sender."""

import json
from typing import Any

import pytest

from tests.faults.server import Server, client_of
from tests.redteam.visitors import Visitor, visitor
from tests.stalls import no_stalls

# Every other line is the same in both: `difflib` alone took 77 s.
OLD = "".join(f"{number}\n" if number % 2 else "A\n" for number in range(40_000))
NEW = "".join(f"{number}\n" if number % 2 else "B\n" for number in range(40_000))


async def two_versions(person: Visitor) -> tuple[str, str]:
    await person.result("write", path="/a.txt", content=OLD)
    written = await person.result("write", path="/a.txt", content=NEW, overwrite=True)
    newer, older = (await person.result("file_versions", file_id=written["file_id"]))["versions"]
    return older["version_id"], newer["version_id"]


async def test_comparing_versions_that_differ_everywhere_does_not_block(served: Server) -> None:
    async with visitor(served) as person:
        older, newer = await two_versions(person)
        compared = await person.result("file_compare", from_version=older, to_version=newer)

    assert (compared["added"], compared["removed"]) == (20_000, 20_000)
    no_stalls(served.data_dir.parent)


@pytest.mark.long
async def test_showing_changes_that_are_everywhere_does_not_block(served: Server) -> None:
    async with visitor(served) as person:
        session = (await person.client.post(f"/workspaces/{person.workspace_id}/sessions", json={})).json()["id"]
        for content in (OLD, NEW):
            call = {"tool": "write", "args": {"path": "/a.txt", "content": content, "overwrite": True}}
            made = await person.client.post(
                f"/workspaces/{person.workspace_id}/tools", json={**call, "session_id": session}
            )
            assert made.status_code == 200, made.text
        shown = await person.result("changes", session_id=session)

    assert shown["changes"][0]["added"] == 40_000
    no_stalls(served.data_dir.parent)


def unknown_arguments(size: int) -> bytes:
    return json.dumps({"tool": "read", "args": {f"a{number:07}": number for number in range(size)}}).encode()


async def test_million_unknown_arguments_from_a_stranger_are_not_parsed(served: Server) -> None:
    body = unknown_arguments(600_000)
    async with visitor(served) as owner, visitor(served) as stranger:
        answer = await stranger.client.post(f"/workspaces/{owner.workspace_id}/tools", content=body)
        nobody = await _as_nobody(served, f"/workspaces/{owner.workspace_id}/tools", body)

    assert answer.status_code == 403
    assert nobody.status_code == 401
    assert len(answer.content) < 1_000
    no_stalls(served.data_dir.parent)


async def _as_nobody(served: Server, path: str, body: bytes) -> Any:
    async with client_of(served) as client:
        return await client.post(path, content=body)


def costly_bodies() -> list[tuple[bytes, int]]:
    """Return bodies with the status of their response."""
    return [
        (unknown_arguments(600_000), 413),
        (unknown_arguments(19_000), 400),
        (unknown_arguments(3_000), 400),
        (b'{"tool": "read", "args": {"path": ' + b"[" * 500_000 + b"]" * 500_000 + b"}}", 400),
        (b'{"tool": "read", "args": {"path": ' + b"9" * 4_000_000 + b"}}", 400),
        (b'{"tool": "read", "args": {"path": "' + b"\\u00e4" * 1_000_000 + b'"}}', 400),
        (b'{"tool": "read_multiple_files", "args": {"paths": [' + b"1," * 19_000 + b"1]}}", 400),
        (b'{"tool": "changes", "args": {"calls": [' + b"1," * 19_000 + b"1]}}", 400),
        (b'{"tool": "' + b"x" * 10_000_000 + b'", "args": {}}', 400),
        (b'{"tool": "read", "args": {"' + b"x" * 10_000_000 + b'": 1}}', 400),
    ]


async def test_costly_bodies_of_a_member_do_not_block(served: Server) -> None:
    async with visitor(served) as person:
        for body, status in costly_bodies():
            answer = await person.client.post(f"/workspaces/{person.workspace_id}/tools", content=body)

            assert answer.status_code == status, (body[:60], answer.text[:500])
            assert len(answer.content) < 50_000, body[:60]
            assert len(answer.json().get("fields", {})) <= 21, body[:60]
            no_stalls(served.data_dir.parent)


async def test_large_unauthenticated_body_is_not_read(served: Server) -> None:
    for path in ("/auth/login", "/auth/register", "/workspaces"):
        answer = await _as_nobody(served, path, b"[" + b"{}," * 2_000_000 + b"{}]")

        assert answer.status_code == 401
    no_stalls(served.data_dir.parent)


@pytest.mark.long
async def test_large_file_is_still_written(served: Server) -> None:
    content = "0123456789abcde\n" * 600_000
    async with visitor(served) as person:
        await person.result("write", path="/large.txt", content=content)
        read = await person.result("read", path="/large.txt", offset=599_999, limit=10)

    assert "0123456789abcde" in json.dumps(read)


@pytest.mark.long
async def test_slow_yaml_does_not_block(served: Server) -> None:
    dense = "a: [" + "1," * 2_000 + "1]\n"
    async with visitor(served) as person:
        await person.result("write", path="/plans/dense.plan", content=f"---\n{dense}---\n# Plan\n")
        listed = await person.result("plan_list")
        read = await person.result("plan_read", path="/plans/dense.plan")
        edited = await person.result("plan_edit", path="/plans/dense.plan", old_string="# Plan", new_string="# Ours")
        written = await person.call("plan_write", path="/plans/dense.plan", title="Dense", content="x")
        agents = f"/workspaces/{person.workspace_id}/agents"
        agent = await person.client.post(agents, json={"name": "dense", "definition": dense})

    assert len(listed["plans"][0]["metadata"]["a"]) == len(read["metadata"]["a"]) == 2_001
    assert edited["path"] == "/plans/dense.plan"
    # Three times the work of parsing it, and so more than one call may use on a slow machine.
    assert written.status_code in (200, 413)
    assert agent.status_code == 400
    no_stalls(served.data_dir.parent)


@pytest.mark.long
async def test_edit_with_near_matches_everywhere_does_not_block(served: Server) -> None:
    small, large = ("a" * 198 + "b\n") * 320, ("a" * 198 + "b\n") * 5_000
    async with visitor(served) as person:
        for path, content in (("/small.txt", small), ("/large.txt", large)):
            await person.result("write", path=path, content=content)
            failed = await person.call("edit", path=path, old_string=("a" * 150 + "c\n") * 40, new_string="x")
            many = [{"old_string": "a" * 198 + "c", "new_string": "x"}] * 100
            refused = await person.call("edit", path=path, edits=many)

            assert "Not found" in failed.json()["fields"]["old_string"]
            assert "Not found" in refused.json()["fields"]["edits.0.old_string"]
    no_stalls(served.data_dir.parent)


async def test_answer_that_matches_every_part_of_its_schema_does_not_block(served: Server) -> None:
    schema = {"items": {"allOf": [{"type": "integer"}] * 900}}
    async with visitor(served) as person:
        at = f"/workspaces/{person.workspace_id}"
        await person.result("ask_user", questions=[{"name": "x", "question": "Which?", "schema": schema}])
        [question] = (await person.client.get(f"{at}/paused-calls")).json()["items"]
        answer = await person.client.post(
            f"{at}/paused-calls/{question['id']}/answers", json={"answers": {"x": [0] * 33_000}}
        )

    assert answer.status_code in (200, 413, 422), answer.text[:300]
    no_stalls(served.data_dir.parent)
