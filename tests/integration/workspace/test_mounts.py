"""The four mounts of a workspace: which are writable, and whose @state is whose."""

from dataclasses import replace

import pytest

from tests.integration.conftest import Crib
from tests.integration.gate.builders import get, hired, put, rows, shift, with_tools
from tests.integration.gate.test_approvals import in_session
from toolcrib.core.callers import Caller
from toolcrib.core.errors import NotFound, ReadOnlyMount
from toolcrib.core.ids import RunId, new_id

pytestmark = pytest.mark.req("WS-1")


@pytest.fixture
def crib(crib: Crib) -> Crib:
    return with_tools(crib, put, get, shift)


async def text_at(crib: Crib, path: str, caller: Caller | None = None) -> object:
    outcome = await crib.call("get", caller or crib.caller, path=path)
    return outcome.result if outcome.error is None else type(outcome.error)


@pytest.mark.parametrize("mount", ["project", "central", "state"])
async def test_writable_mount_keeps_its_own_history_and_tree(crib: Crib, mount: str) -> None:
    outcome = await crib.call("put", path=f"@{mount}/notes/a.txt", text=mount)

    assert outcome.succeeded
    tree = f"state/{crib.caller.user_id}" if mount == "state" else mount
    assert (crib.mount(tree) / "notes" / "a.txt").read_text() == mount
    assert await text_at(crib, f"@{mount}/notes/a.txt") == mount
    stored = await rows(crib, "select mount, path from toolcrib.files where workspace_id = %s order by path")
    assert stored == [(tree, "/notes"), (tree, "/notes/a.txt")]
    others = {"project", "central", "state", "pkg"} - {mount}
    assert {await text_at(crib, f"@{other}/notes/a.txt") for other in others} == {NotFound}


async def test_nothing_is_moved_from_one_mount_to_another(crib: Crib) -> None:
    await crib.call("put", path="@central/a.txt", text="a")

    away = await crib.call("shift", source="@central/a.txt", destination="@project/a.txt")
    within = await crib.call("shift", source="@central/a.txt", destination="@central/b.txt")

    assert away.error is not None
    assert away.error.code == "CONFLICT"
    assert within.succeeded
    assert await text_at(crib, "@central/b.txt") == "a"
    assert list(crib.project.iterdir()) == []


@pytest.mark.req("WS-1", part="`/x` means `@project/x`")
async def test_workspace_tool_paths_refer_to_the_project(crib: Crib) -> None:
    await crib.call("put", path="@project/a.txt", text="here")

    assert (await crib.result("read", path="/a.txt"))["content"] == "here"


async def test_pkg_is_read_only(crib: Crib) -> None:
    (crib.mount("pkg") / "guide.md").write_text("# Guide\n")
    agent = await hired(crib, trust="autonomous", tool_permissions={name: {"allowed": True} for name in ("put", "get")})

    for caller in (crib.caller, agent):
        assert await text_at(crib, "@pkg/guide.md", caller) == "# Guide\n"
        for path in ("@pkg/guide.md", "@pkg/new.md", "@pkg/new/folder/x"):
            outcome = await crib.call("put", caller, path=path, text="x")
            assert type(outcome.error) is ReadOnlyMount

    assert [(path.name, path.read_text()) for path in crib.mount("pkg").iterdir()] == [("guide.md", "# Guide\n")]
    assert await rows(crib, "select id from toolcrib.files where workspace_id = %s") == []


@pytest.mark.parametrize("path", ["@state/logs/execution.jsonl", "@state/logs/a/b", "@state/logs"])
async def test_no_tool_writes_the_logs(crib: Crib, path: str) -> None:
    outcome = await crib.call("put", path=path, text="forged\n")

    assert type(outcome.error) is ReadOnlyMount
    assert list(crib.mount(f"state/{crib.caller.user_id}").iterdir()) == []


async def test_logs_are_readable_and_similar_names_are_writable(crib: Crib) -> None:
    logs = crib.mount(f"state/{crib.caller.user_id}/logs")
    (logs / "execution.jsonl").write_text("{}\n")

    assert await text_at(crib, "@state/logs/execution.jsonl") == "{}\n"
    assert (await crib.call("put", path="@state/logs2", text="x")).succeeded
    assert (await crib.call("put", path="@state/a/logs/x", text="x")).succeeded


async def test_every_session_and_every_caller_outside_sessions_has_its_own_state(crib: Crib) -> None:
    permissions = {name: {"allowed": True} for name in ("put", "get")}
    agent = await hired(crib, trust="autonomous", tool_permissions=permissions)
    other = await hired(crib, trust="autonomous", tool_permissions=permissions)
    first, second = await in_session(crib, agent), await in_session(crib, agent)
    callers = [crib.caller, agent, other, first, second]

    for number, caller in enumerate(callers):
        assert await text_at(crib, "@state/a.txt", caller) is NotFound
        assert (await crib.call("put", caller, path="@state/a.txt", text=str(number))).succeeded

    assert [await text_at(crib, "@state/a.txt", caller) for caller in callers] == ["0", "1", "2", "3", "4"]
    # It persists between runs.
    assert await text_at(crib, "@state/a.txt", replace(first, run_id=RunId(new_id()))) == "3"
