"""A process dies at each step between the commit and the last disk write: recovery completes its change."""

import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.databases import DatabaseUrls
from tests.faults.consistency_check import Row, Workspace
from tests.faults.crasher import Doomed, crash
from tests.faults.processes import Site, engine_at, recover_node
from tests.integration.conftest import WorkspaceFixture, new_caller
from toolcrib.core.files import AuthorKind
from toolcrib.core.ids import CallId, FileId, new_id
from toolcrib.core.tool_calls import ToolCall
from toolcrib.settings import Settings
from toolcrib.storage.change_sets import AppliedFile
from toolcrib.storage.database import Database, Tenant
from toolcrib.wiring.tool_runtime import assemble

OURS, THEIRS = "ours\n", "theirs\n"


@dataclass(frozen=True)
class Yard(WorkspaceFixture):
    """A workspace in which processes die."""

    site: Site
    truth: Workspace

    def at(self, path: str) -> Path:
        return self.project / path[1:]

    def dies(self, tool: str, /, *, after: int = 0, **arguments: Any) -> bool:
        """Make a call in a process that dies after some steps on disk; return whether there are no more steps."""
        caller = replace(self.caller, call_id=CallId(new_id()))
        return crash(Doomed(self.site, caller, ToolCall(tool, arguments), after))

    async def recovers(self) -> None:
        """Do what the next server does before it uses the workspace."""
        async with engine_at(self.site) as engine:
            await recover_node(engine)

    def history(self, path: str) -> list[tuple[str, bytes | None]]:
        """Return authors and contents of the file at a path, from its first version."""
        return [(row.author_kind, self._content(row)) for row in self.truth.versions(path)]

    def _content(self, row: Row) -> bytes | None:
        return self.truth.content(row.sha256) if row.sha256 and not row.deleted else None


NewYard = Callable[[], Awaitable[Yard]]


@pytest.fixture
async def new_yard(database: Database, settings: Settings, database_urls: DatabaseUrls) -> NewYard:
    # Its own node: recovery of a node covers all its workspaces.
    node = f"node-{secrets.token_hex(4)}"
    here = settings.model_copy(update={"node_name": node})
    site = Site(database_urls.app, database_urls.system, here.data_dir, node)

    async def make() -> Yard:
        engine = assemble(here, database)
        caller = await new_caller(engine)
        project = here.data_dir / "workspaces" / str(caller.workspace_id) / "project"
        project.mkdir(parents=True)
        truth = Workspace(database_urls.owner, caller.workspace_id, project)
        return Yard(engine, caller, site, truth)

    return make


@pytest.fixture
async def yard(new_yard: NewYard) -> Yard:
    return await new_yard()


@dataclass(frozen=True)
class Case:
    """A call of one kind, and the state that it needs."""

    tool: str
    arguments: dict[str, Any]
    files: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    # Made executable externally, and detected.
    executable: tuple[str, ...] = ()
    # The call is about this file's first version.
    restores: str | None = None

    async def prepare(self, yard: Yard) -> dict[str, Any]:
        """Bring the workspace to the needed state and return the call's arguments."""
        ids: dict[str, str] = {}
        for folder in self.folders:
            await yard.result("mkdir", path=folder)
        for path in self.files:
            ids[path] = (await yard.result("write", path=path, content=f"{path}\n"))["file_id"]
        for path in self.executable:
            yard.at(path).chmod(0o755)
            await yard.result("read", path=path)
        for path in self.deleted:
            await yard.result("rm", path=path)
        if self.restores is None:
            return self.arguments
        first = yard.truth.rows(
            "select id from toolcrib.versions "
            "where workspace_id = %(workspace)s and file_id = %(file)s and version_number = 1",
            file=ids[self.restores],
        )
        return {"file_id": ids[self.restores], "version_id": str(first[0][0])}


TREE = ("/d/1.txt", "/d/2.txt", "/d/in/3.txt", "/d/in/4.txt")
CASES = {
    "made": Case("write", {"path": "/a.txt", "content": OURS}),
    "made with its folders": Case("write", {"path": "/x/y/a.txt", "content": OURS}),
    "changed": Case("write", {"path": "/a.txt", "content": OURS, "overwrite": True}, files=("/a.txt",)),
    "edited": Case("edit", {"path": "/a.txt", "old_string": "a", "new_string": "b"}, files=("/a.txt",)),
    "moved": Case("mv", {"source": "/a.txt", "destination": "/b.txt"}, files=("/a.txt",)),
    "moved into a folder": Case("mv", {"source": "/a.txt", "destination": "/d/"}, files=("/a.txt", "/d/1.txt")),
    "deleted": Case("rm", {"path": "/a.txt"}, files=("/a.txt",)),
    "folder made": Case("mkdir", {"path": "/p/q"}),
    "folder deleted": Case("rm", {"path": "/p/q"}, folders=("/p/q",)),
    "folder moved with all in it": Case("mv", {"source": "/d", "destination": "/e"}, files=TREE),
    "touched": Case("touch", {"path": "/a.txt"}, files=("/a.txt",)),
    "made by touching": Case("touch", {"path": "/a.txt"}),
    "given its old mode": Case("file_restore", {}, files=("/a.txt",), executable=("/a.txt",), restores="/a.txt"),
    "deleted and restored": Case("file_restore", {}, files=("/a.txt",), deleted=("/a.txt",), restores="/a.txt"),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
async def test_change_whose_process_dies_at_any_step_is_completed_by_recovery(case: Case, new_yard: NewYard) -> None:
    undisturbed = await new_yard()
    await undisturbed.result(case.tool, **await case.prepare(undisturbed))
    expected = heads_of(undisturbed)
    for steps in count():
        yard = await new_yard()

        was_last = yard.dies(case.tool, after=steps, **await case.prepare(yard))
        await yard.recovers()

        assert heads_of(yard) == expected, f"died after {steps} steps"
        yard.truth.assert_true(external=bool(case.executable))
        if was_last:
            break
    assert steps > 0


async def test_process_that_dies_during_recovery_is_recovered_from(yard: Yard) -> None:
    await CASES["folder moved with all in it"].prepare(yard)
    yard.dies("mv", source="/d", destination="/e", after=3)
    # Half of it by hand, as a recovery that died would have left it.
    stray = yard.at("/e") / f".~toolcrib-{secrets.token_hex(8)}.tmp"
    stray.write_bytes(b"half")

    await yard.recovers()
    await yard.recovers()

    yard.truth.assert_true()
    assert not yard.at("/d").exists()


# External writes before recovery


@dataclass(frozen=True)
class Meddling:
    """A call that died before its first step, and where an external program wrote then."""

    case: Case
    written: str


MEDDLINGS = {
    "made": Meddling(CASES["made"], "/a.txt"),
    "changed": Meddling(CASES["changed"], "/a.txt"),
    "edited": Meddling(CASES["edited"], "/a.txt"),
    "touched": Meddling(CASES["touched"], "/a.txt"),
    "deleted": Meddling(CASES["deleted"], "/a.txt"),
    "moved, and written where it goes": Meddling(CASES["moved"], "/b.txt"),
    "moved, and written where it was": Meddling(CASES["moved"], "/a.txt"),
    "folder moved, and written in it": Meddling(CASES["folder moved with all in it"], "/d/in/3.txt"),
}


@pytest.mark.parametrize("meddling", MEDDLINGS.values(), ids=MEDDLINGS.keys())
async def test_external_writes_before_recovery_are_kept_beside_ours(meddling: Meddling, yard: Yard) -> None:
    arguments = await meddling.case.prepare(yard)
    yard.dies(meddling.case.tool, **arguments)
    ours = contents_of(yard)
    yard.at(meddling.written).write_text(THEIRS)

    await yard.recovers()

    assert ours <= contents_of(yard)
    [workspace_path] = [path for path in yard.project.rglob("*") if path.is_file() and path.read_text() == THEIRS]
    assert yard.history(f"/{workspace_path.relative_to(yard.project)}")[-1] == (AuthorKind.EXTERNAL, THEIRS.encode())
    yard.truth.assert_true(external=True)


# Other processes of the node find the mark before any recovery


@dataclass(frozen=True)
class Meeting:
    """A call of another process, made while the change of a dead one is still to be applied to disk."""

    tool: str
    arguments: dict[str, Any]
    expected: frozenset[str]


MEETINGS = {
    "read": Meeting("read", {"path": "/d/1.txt"}, frozenset({"/d/1.txt", "/d/2.txt"})),
    "ls": Meeting("ls", {"path": "/d"}, frozenset({"/d/1.txt", "/d/2.txt"})),
    "edit": Meeting(
        "edit", {"path": "/d/1.txt", "old_string": "ours", "new_string": "more"}, frozenset({"/d/1.txt", "/d/2.txt"})
    ),
    "touch": Meeting("touch", {"path": "/d/1.txt"}, frozenset({"/d/1.txt", "/d/2.txt"})),
    "rm": Meeting("rm", {"path": "/d/1.txt"}, frozenset({"/d/2.txt"})),
    "mv": Meeting("mv", {"source": "/d/1.txt", "destination": "/1.txt"}, frozenset({"/1.txt", "/d/2.txt"})),
    "mv of its folder": Meeting("mv", {"source": "/d", "destination": "/e"}, frozenset({"/e/1.txt", "/e/2.txt"})),
    "write beside it": Meeting(
        "write", {"path": "/d/3.txt", "content": "x"}, frozenset({"/d/1.txt", "/d/2.txt", "/d/3.txt"})
    ),
}


async def test_command_starts_with_every_committed_change_applied(yard: Yard) -> None:
    """It sees only the disk: it would create a file that is not applied yet, and get a conflict."""
    await yard.result("write", path="/d/1.txt", content="first\n")
    yard.dies("write", path="/d/2.txt", content=OURS)

    result = await yard.result("bash", command="cat d/2.txt; echo more >> d/2.txt")

    assert result["output"] == OURS
    assert yard.at("/d/2.txt").read_text() == f"{OURS}more\n"
    yard.truth.assert_true()


@pytest.mark.parametrize("meeting", MEETINGS.values(), ids=MEETINGS.keys())
async def test_process_that_finds_the_mark_of_a_dead_one_completes_its_change_first(
    meeting: Meeting, yard: Yard
) -> None:
    await yard.result("write", path="/d/1.txt", content="first\n")
    await yard.result("write", path="/d/2.txt", content="second\n")
    yard.dies("write", path="/d/1.txt", content=OURS, overwrite=True)

    await yard.result(meeting.tool, **meeting.arguments)

    await yard.recovers()
    assert {path for path, digest in yard.truth.live().items() if digest} == meeting.expected
    yard.truth.assert_true()


async def test_earlier_reader_does_not_clear_the_mark_of_a_later_change(yard: Yard) -> None:
    written = await yard.result("write", path="/a.txt", content="first\n")
    file = await yard.engine.workspace_services.files.by_id(Tenant.of(yard.caller), FileId(written["file_id"]))
    assert file.fingerprint is not None
    yard.dies("write", path="/a.txt", content=OURS, overwrite=True)

    # The last step of a read, if another commit came between its stat and this.
    seen = AppliedFile(file.id, file.version_id, file.fingerprint)
    services, tenant = yard.engine.workspace_services, Tenant.of(yard.caller)
    home = (await services.files.lookup(tenant, [file.state.path])).home
    await services.changes.save_fingerprints(tenant, [seen], home)

    await yard.recovers()
    assert yard.at("/a.txt").read_text() == OURS
    yard.truth.assert_true()


async def test_folder_is_moved_with_external_changes_in_it(yard: Yard) -> None:
    """No crash: the same check of the base, with an external change that is not tracked yet."""
    await yard.result("write", path="/d/1.txt", content=OURS)
    yard.at("/d/1.txt").write_text(THEIRS)

    await yard.result("mv", source="/d", destination="/e")

    assert [content for _, content in yard.history("/e/1.txt")] == [OURS.encode(), THEIRS.encode(), THEIRS.encode()]
    yard.truth.assert_true(external=True)


def heads_of(yard: Yard) -> list[tuple[str, bool, str, int, bytes | None, int]]:
    return [(row.path, row.deleted, row.kind, row.mode, row.sha256, row.version_number) for row in yard.truth.heads()]


def contents_of(yard: Yard) -> set[tuple[str, bytes]]:
    """Return every content in the history, with its path."""
    return {(row.path, row.sha256) for row in yard.truth.versions() if row.sha256}
