"""A review over HTTP of files of every size: all changed lines can be seen, by pages where they are many."""

import re
from collections.abc import Iterator
from typing import Any
from uuid import UUID

from tests.acceptance.pending_approvals import hire, session_of
from tests.acceptance.serving import Serving
from tests.acceptance.workspace import Workspace
from toolcrib.client import ApprovalOut, Client

ASKED = "trust: guided\ntool_permissions: {bash: {allowed: true, approve: effect}}"
REVIEWED = "trust: review\ntool_permissions: {write: {allowed: true}, edit: {allowed: true}, read: {allowed: true}}"
HEADER = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@\n")


def text(lines: int) -> str:
    return "".join(f"line {number}\n" for number in range(lines))


def pages(workspace: Workspace, session: str, path: str) -> Iterator[dict[str, Any]]:
    """Yield the file as each page of its lines shows it."""
    following: int | None = 0
    while following is not None:
        found = workspace.get(f"/sessions/{session}/review", path=path, from_line=following)
        assert found.status_code == 200, found.text
        [file] = found.json()["files"]
        yield file
        following = file["next_line"]


def added_lines(file: dict[str, Any]) -> dict[int, str]:
    """Return the added lines by their numbers, as the headers of the hunks count them."""
    found: dict[int, str] = {}
    for hunk in file["hunks"]:
        header = HEADER.match(hunk["diff"])
        assert header is not None, hunk["diff"][:80]
        number = int(header[3])
        for line in hunk["diff"][header.end() :].splitlines():
            if line.startswith("+"):
                found[number] = line[1:]
            number += not line.startswith(("-", "\\"))
    return found


def test_a_change_in_a_file_of_any_length_is_shown(workspace: Workspace) -> None:
    sizes = (10, 300, 3_000, 100_000)
    for size in sizes:
        workspace.write(f"/lines{size}.txt", text(size))
    agent = hire(workspace, REVIEWED)
    session = session_of(workspace, agent)
    for size in sizes:
        for number in (3, size - 4):
            given = {"path": f"/lines{size}.txt", "old_string": f"line {number}\n", "new_string": f"other {number}\n"}
            made = agent.workspace.post("/tools", {"tool": "edit", "args": given, "session_id": session})
            assert made.status_code == 200, made.text

    shown = workspace.get(f"/sessions/{session}/review").json()

    for size in sizes:
        [file] = [one for one in shown["files"] if one["path"] == f"/lines{size}.txt"]
        assert (file["added"], file["removed"], file["flaw"], file["next_line"]) == (2, 2, None, None), size
        assert added_lines(file) == {4: "other 3", size - 3: f"other {size - 4}"}
    assert (shown["added"], shown["removed"], shown["unshown"], shown["left_out"]) == (8, 8, [], 0)
    # One of its hunks is reverted.
    [file] = [one for one in shown["files"] if one["path"] == "/lines100000.txt"]
    choice = {"path": file["path"], "version": file["version"], "decision": "revert", "hunks": [file["hunks"][0]["id"]]}
    done = workspace.post(f"/sessions/{session}/review", {"decisions": [choice]})
    assert done.status_code == 200, done.text
    assert workspace.on_disk("/lines100000.txt").read_text() == text(100_000).replace("line 99996\n", "other 99996\n")


def test_every_line_of_a_long_new_file_is_on_a_page(workspace: Workspace) -> None:
    agent = hire(workspace, REVIEWED)
    session = session_of(workspace, agent)
    size = 30_000
    given = {"path": "/package-lock.json", "content": text(size)}
    made = agent.workspace.post("/tools", {"tool": "write", "args": given, "session_id": session})
    assert made.status_code == 200, made.text

    [listed] = workspace.get(f"/sessions/{session}/review").json()["files"]
    parts = list(pages(workspace, session, "/package-lock.json"))

    # The list has its beginning, and says that there is more.
    assert (listed["added"], listed["lines"], listed["hunks_total"]) == (size, size, 1)
    assert 0 < listed["next_line"] == len(added_lines(listed)) < size
    assert len(parts) == 6
    assert {part["hunks"][0]["id"] for part in parts} == {listed["hunks"][0]["id"]}
    lines = {number: line for part in parts for number, line in added_lines(part).items()}
    assert lines == {number + 1: f"line {number}" for number in range(size)}


def test_a_client_has_all_lines_of_a_review_and_of_an_approval(server: Serving, workspace: Workspace) -> None:
    agent = hire(workspace, REVIEWED)
    session = session_of(workspace, agent)
    given = {"path": "/long.txt", "content": text(12_000)}
    made = agent.workspace.post("/tools", {"tool": "write", "args": given, "session_id": session})
    assert made.status_code == 200, made.text
    asking = hire(workspace, ASKED, name="asking")
    # More than an approval has itself: by its number of files, by their size, and in the last one.
    asked = asking.asks("bash", command="for n in $(seq 1200); do echo $n > f$n; done; seq 60000 > g; echo evil > h")
    with Client(server.origin, workspace.token) as client:
        review = client.review(UUID(workspace.id), UUID(session), whole=True)
        approval = client.paused_call(UUID(workspace.id), UUID(asked["pause_id"]))
        assert isinstance(approval, ApprovalOut)
        whole = client.whole_approval(UUID(workspace.id), approval)

    [file] = review.files
    assert added_lines(file.model_dump()) == {number + 1: f"line {number}" for number in range(12_000)}
    assert file.next_line is None
    before = approval.diff.splitlines()
    assert "+evil" not in before
    lines = whole.diff.splitlines()
    assert {f"+{number}" for number in range(1, 60_001)} | {"+evil"} <= set(lines)
    assert sum(line.startswith("+++ ") for line in lines) == len(whole.changes) == 1_202
    assert whole.arguments_sha256 == approval.arguments_sha256
