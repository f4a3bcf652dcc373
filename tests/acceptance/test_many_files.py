"""Effects of thousands of files, on a server that other people use meanwhile: approved, reviewed and undone."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from tests.acceptance.conftest import registered
from tests.acceptance.pending_approvals import decide, ended, hire, session_of
from tests.acceptance.serving import Serving, serving
from tests.acceptance.workspace import Workspace
from tests.databases import DatabaseUrls
from tests.stalls import no_stalls
from tests.wait_until import PATIENCE

ASKED = "trust: guided\ntool_permissions: {bash: {allowed: true, approve: effect}}"
REVIEWED = "trust: review\ntool_permissions: {bash: {allowed: true}}"


@pytest.fixture
def watched(database_urls: DatabaseUrls, tmp_path: Path) -> Iterator[Serving]:
    """A server that writes down what blocks its event loop."""
    with serving(tmp_path, database_urls) as server:
        yield server


@contextmanager
def answering(server: Serving) -> Iterator[None]:
    """Check that the server answers others while a test has work for it, and that nothing blocks its loop."""
    waits: list[float] = []
    is_over = threading.Event()

    def ask() -> None:
        with httpx2.Client(trust_env=False, timeout=PATIENCE) as client:
            while not is_over.wait(0.02):
                began = time.monotonic()
                assert client.get(f"{server.origin}/livez").status_code == 200
                waits.append(time.monotonic() - began)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        yield
    finally:
        is_over.set()
        asking.join()
    no_stalls(server.directory)
    assert waits, "The server answered nobody."


@pytest.mark.gate_cases(1)
@pytest.mark.parametrize("files", [1_200, 5_000])
def test_an_approval_of_thousands_of_files_is_shown_whole_and_holds_up_nobody(watched: Serving, files: int) -> None:
    with httpx2.Client(base_url=watched.api, trust_env=False, timeout=PATIENCE) as http:
        ada = registered(watched, "ada@large.example.com")
        made = http.post("/workspaces", json={"name": "large"}, headers={"Authorization": f"Bearer {ada.token}"}).json()
        project = watched.data_dir / "workspaces" / made["id"] / "project"
        project.mkdir(parents=True)
        workspace = Workspace(http, made["id"], ada.token, project)
        with answering(watched):
            _approve_many(workspace, files)
        with answering(watched):
            _review_and_undo_many(workspace, files)


def _approve_many(workspace: Workspace, files: int) -> None:
    agent = hire(workspace, ASKED)
    command = f"mkdir d; for n in $(seq {files}); do echo line $n > d/f$n; done"
    asked = agent.asks("bash", command=command)
    approval = workspace.get(f"/paused-calls/{asked['pause_id']}").json()
    assert sum(one.get("count", 1) for one in approval["changes"]) == files + 1
    # Every line of every file is on a page.
    shown: dict[str, str] = {}
    first: int | None = 0
    while first is not None:
        page = workspace.get(f"/paused-calls/{asked['pause_id']}/changes", first=first).json()
        shown |= {one["path"]: one["diff"] for one in page["changes"] if one["kind"] == "file"}
        first = page["next"]
    assert len(shown) == files
    assert all(diff.endswith(f"\n+line {path.removeprefix('/d/f')}\n") for path, diff in shown.items())

    approved = decide(workspace, asked["pause_id"], arguments_sha256=approval["arguments_sha256"])

    assert approved.status_code == 200, approved.text
    call = ended(workspace, asked["call_id"])
    assert (call["state"], call["error"]) == ("done", None)
    # The call has ended when it is committed, a moment before all of it is on the disk.
    until = time.monotonic() + PATIENCE
    while workspace.call("read", path=f"/d/f{files}").status_code != 200:
        assert time.monotonic() < until
    assert workspace.result("read", path=f"/d/f{files}")["content"] == f"line {files}\n"


def _review_and_undo_many(workspace: Workspace, files: int) -> None:
    agent = hire(workspace, REVIEWED, name="reviewed")
    session = session_of(workspace, agent)
    command = f"cd d; for n in $(seq {files}); do echo more >> f$n; done"
    made = agent.workspace.post("/tools", {"tool": "bash", "args": {"command": command}, "session_id": session})
    assert made.status_code == 200, made.text
    page = workspace.get(f"/sessions/{session}/review").json()
    paths = [one["path"] for one in page["files"]]
    assert (page["total"], page["left_out"], page["unshown"]) == (files, files - len(paths), [])
    while (offset := page["next_offset"]) is not None:
        page = workspace.get(f"/sessions/{session}/review", offset=offset).json()
        paths += [one["path"] for one in page["files"]]
    assert len(set(paths)) == files
    # What was not listed is not kept by a decision that does not name it.
    keep = {"all": "keep", "version": page["version"]}
    refused = workspace.post(f"/sessions/{session}/review", keep)
    assert (refused.status_code, "not listed" in refused.json()["error"]) == (409, True)

    undone = workspace.call("undo", session_id=session)

    assert undone.status_code == 200, undone.text
    assert workspace.result("read", path=f"/d/f{files}")["content"] == f"line {files}\n"
