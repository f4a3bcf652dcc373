"""The exact text that each dialect returns to a model: plain for a text, JSON encoded once for a value."""

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.acceptance.shapes import Says
from tests.clients.client_server import Reply, Stage, stage_in
from tests.databases import DatabaseUrls

pytestmark = pytest.mark.xdist_group("clients")

BODY = 'She said: "Hi".\n'
SHA = hashlib.sha256(BODY.encode()).hexdigest()
AGENT = """
provider: openai-compatible
model: gpt-scripted
context_window: 32000
trust: autonomous
toolsets: [workspace, studio, mounts, project]
tool_permissions:
  read: {allowed: true}
  file_read: {allowed: true}
  fs.read: {allowed: true}
  read_file: {allowed: true}
"""
# PostgreSQL's jsonb orders keys by length: shorter keys first.
MOUNTS = json.dumps(
    {"ok": True, "path": "@project/a.txt", "bytes": len(BODY), "sha256": SHA, "content": BODY, "truncated": False},
    separators=(",", ":"),
)
WORKSPACE = json.dumps(
    {
        "hash": SHA,
        "path": "/a.txt",
        "limit": 500,
        "offset": 0,
        "synced": True,
        "content": BODY,
        "truncated": False,
        "total_lines": 1,
    },
    separators=(",", ":"),
)
NOTE = re.compile(
    r"\[?truncated: true\. The full result has [\d,]+ characters\. Continue with `read_result`: "
    r'call_id "(?P<call>[0-9a-f-]{36})", offset (?P<offset>\d+)\.\]?'
)
Call = tuple[str, dict[str, Any]]
Calls = tuple[Call, ...]


@pytest.fixture(scope="module")
def stage(database_urls: DatabaseUrls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with stage_in(tmp_path_factory.mktemp("models"), database_urls) as started:
        yield started


@dataclass(frozen=True)
class Heard:
    """The results that a model read, turn by turn, the tools it was offered, and the stored results."""

    results: list[list[str]]
    offered: list[set[str]]
    kept: list[str]


def heard(stage: Stage, content: str, *turns: Calls | Callable[[str], Calls]) -> Heard:
    """Runs an agent in a workspace with one file. A turn may use the last result of the turn before."""
    space = stage.space()
    space.result("write", path="/a.txt", content=content)
    session = space.session(space.agent(AGENT))
    results: list[list[str]] = []
    with space.socket() as socket:
        for turn in turns:
            calls = turn(results[-1][-1]) if callable(turn) else turn
            stage.model.script(Reply(calls=calls), Reply("Done."))
            socket.run(session, "Read it.")
            results.append([one["content"] for one in stage.model.last.body["messages"][-len(calls) :]])
    names = [{tool["function"]["name"] for tool in asked.body["tools"]} for asked in stage.model.asked]
    kept = [one["content"] for one in space.messages(session) if one["role"] == "tool"]
    return Heard(results, names, kept)


def result(stage: Stage, content: str, *calls: Call) -> list[str]:
    return heard(stage, content, calls).results[0]


def test_each_dialect_returns_exactly_this_result_to_a_model(stage: Stage) -> None:
    found = heard(
        stage,
        BODY,
        (
            ("read_file", {"path": "a.txt"}),
            ("file_read", {"path": "a.txt"}),
            ("fs_read", {"path": "@project/a.txt"}),
            ("read", {"path": "/a.txt"}),
        ),
    )

    assert found.results == [[BODY, BODY, MOUNTS, WORKSPACE]]
    assert found.kept == found.results[0], "the same from the rows as from the tools"


def test_each_dialect_returns_exactly_this_error_to_a_model(stage: Stage) -> None:
    project, studio, mounts, workspace = result(
        stage,
        BODY,
        ("read_file", {"path": "b.txt"}),
        ("file_read", {"path": "b.txt"}),
        ("fs_read", {"path": "@project/b.txt"}),
        ("read", {"path": "/b.txt"}),
    )

    assert project == "Error: file not found: b.txt"
    assert studio == "file not found: b.txt"
    assert json.loads(mounts) == {"ok": False, "error": {"code": "ENOENT", "message": Says("b.txt")}}
    assert workspace == "File not found: /b.txt"


def test_a_truncated_result_is_valid_json_and_explains_how_to_read_the_rest(stage: Stage) -> None:
    found = heard(stage, 'x"' * 50_000 + "\n", (("read", {"path": "/a.txt"}),))

    [[text]] = found.results
    result = json.loads(text)
    assert result["truncated"] is True
    assert "bytes truncated" in result["content"]
    assert NOTE.search(result["read_on"])
    assert len(text.encode()) <= 60_000
    assert found.kept == [text]


def test_the_rest_of_a_truncated_text_is_read_as_plain_text(stage: Stage) -> None:
    whole = "".join(f'{number} "quoted" é\n' for number in range(10_000))

    def next_piece(text: str) -> Calls:
        note = NOTE.search(text)
        assert note
        return (("read_result", {"call_id": note["call"], "offset": int(note["offset"])}),)

    found = heard(stage, whole, (("file_read", {"path": "a.txt"}),), next_piece, next_piece, next_piece)

    [first], *rest = found.results
    start = NOTE.search(first)
    assert start
    shown = first[: int(start["offset"])]
    pieces = [NOTE.sub("", piece).removesuffix("\n") if NOTE.search(piece) else piece for [piece] in rest]
    assert shown + "".join(pieces) == whole
    assert all(len(text.encode()) < 60_000 for [text] in found.results)
    assert found.kept == [text for [text] in found.results]


def test_a_model_is_offered_read_result_once_a_result_is_truncated(stage: Stage) -> None:
    small = heard(stage, BODY, (("file_read", {"path": "a.txt"}),))
    large = heard(stage, "x" * 100_000, (("file_read", {"path": "a.txt"}),))

    assert ["read_result" in offered for offered in small.offered] == [False, False]
    assert ["read_result" in offered for offered in large.offered] == [False, True]
