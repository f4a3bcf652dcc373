"""Hostile packages: their archives, their agents, and agents that leave their workflow."""

import asyncio
import io
import json
import os
import stat
import struct
import tarfile
import time
import zipfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from tests.fakes.packages import AGENT, DOCUMENT, GRAPH, files_of, package_of, tar_of
from tests.integration.conftest import WorkspaceFixture, workspace
from tests.wait_until import PATIENCE
from toolcrib.core.agents import TrustLevel
from toolcrib.core.callers import Caller
from toolcrib.core.errors import BadArguments, TooLarge, ToolcribError
from toolcrib.workspace.packages.installer import PackageInstaller
from toolcrib.workspace.packages.package_archive import MOST_BYTES, MOST_FILES, package_in, read_archive_parts

__all__ = ["workspace"]


def zip_with(name: str, body: bytes = b"x", *, mode: int = 0, **entry: Any) -> bytes:
    """A valid package with one more entry."""
    archive = io.BytesIO(package_of())
    with zipfile.ZipFile(archive, "a") as opened:
        added = zipfile.ZipInfo(name)
        # The name ends at the NUL.
        added.filename = name
        added.external_attr = mode << 16
        for field, value in entry.items():
            setattr(added, field, value)
        opened.writestr(added, body, compress_type=entry.get("compress_type", zipfile.ZIP_STORED))
    return archive.getvalue()


def tar_with(name: str, kind: bytes = tarfile.REGTYPE, *, mode: int = 0o644, target: str = "", size: int = 0) -> bytes:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode, entry.linkname, entry.size = kind, mode, target, size
    return tar_of(entry)


def encrypted() -> bytes:
    archive = bytearray(zip_with("secret.md"))
    # The entry's flag, in its own header and in the directory.
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = archive.rfind(mark) + offset
        archive[at : at + 2] = struct.pack("<H", 1)
    return bytes(archive)


def bomb() -> bytes:
    return zip_with("zeros", b"\0" * (MOST_BYTES + 1), compress_type=zipfile.ZIP_DEFLATED)


def lying_bomb() -> bytes:
    """Its headers declare one byte."""
    archive = bytearray(bomb())
    archive = archive.replace(struct.pack("<I", MOST_BYTES + 1), struct.pack("<I", 1))
    return bytes(archive)


def tar_bomb() -> bytes:
    return tar_of(files={"zeros": b"\0" * (MOST_BYTES + 1)})


def crowd() -> bytes:
    return package_of(files={f"{number}": "" for number in range(MOST_FILES + 1)})


def crowd_of_folders() -> bytes:
    return package_of(files={f"{number}/": "" for number in range(2 * MOST_FILES + 1)})


def flow(**files: Any) -> Callable[[], bytes]:
    named = {f"workflow.{name.replace('_', '.')}": body for name, body in files.items()}
    return lambda: package_of(files={"workflow.md": DOCUMENT, **named})


HOSTILE: dict[str, Callable[[], bytes]] = {
    "nothing": lambda: b"",
    "no archive": lambda: b"hello" * 1_000,
    "a cut zip": lambda: package_of()[:-30],
    "a zip without its directory": lambda: package_of()[:40],
    "a cut tar.gz": lambda: tar_of()[:-20],
    "a gzip of nothing": lambda: b"\x1f\x8b" + b"\0" * 50,
    **{
        f"zip: {name!r}": partial(zip_with, name)
        for name in (
            "../evil", "a/../../evil", "/etc/cron.d/evil", "C:/evil", "..\\evil", "a/./b", "a//b", "./evil", "a\0b",
            "a\nb", "x" * 300, "/".join("a" * 70), " a", "a ", "package.json/x", "..", ".",
            ".~toolcrib-0011223344556677.tmp/../x",
        )
    },
    **{f"tar: {name!r}": partial(tar_with, name) for name in ("../evil", "/etc/evil", "a/../../evil", "..")},
    "zip: twice": lambda: zip_with("package.jso_").replace(b"package.jso_", b"package.json"),
    "zip: a link": lambda: zip_with("link", b"/etc/passwd", mode=stat.S_IFLNK | 0o777),
    "zip: a device": lambda: zip_with("null", mode=stat.S_IFCHR | 0o666),
    "zip: a fifo": lambda: zip_with("pipe", mode=stat.S_IFIFO | 0o666),
    "zip: set-uid": lambda: zip_with("sh", mode=stat.S_IFREG | 0o4755),
    "zip: set-gid": lambda: zip_with("sh", mode=stat.S_IFREG | 0o2755),
    "zip: encrypted": encrypted,
    "zip: another compression": lambda: zip_with("x", b"x" * 100, compress_type=zipfile.ZIP_LZMA),
    "tar: a link": lambda: tar_with("link", tarfile.SYMTYPE, target="/etc/passwd"),
    "tar: a hard link": lambda: tar_with("link", tarfile.LNKTYPE, target="package.json"),
    "tar: a device": lambda: tar_with("null", tarfile.CHRTYPE),
    "tar: a disk": lambda: tar_with("sda", tarfile.BLKTYPE),
    "tar: a fifo": lambda: tar_with("pipe", tarfile.FIFOTYPE),
    "tar: sparse": lambda: tar_with("sparse", tarfile.GNUTYPE_SPARSE),
    "tar: set-uid": lambda: tar_with("sh", mode=0o4755),
    "tar: a folder that gives its group": lambda: tar_with("folder", tarfile.DIRTYPE, mode=0o2755),
    "tar: twice": lambda: tar_with("package.json"),
    "a bomb": bomb,
    "a bomb that lies": lying_bomb,
    "a tar bomb": tar_bomb,
    "a crowd": crowd,
    "a crowd of folders": crowd_of_folders,
    "no manifest": lambda: zip_with("x").replace(b"package.json", b"package.jso_"),
    "a manifest of lists": lambda: package_of(files={"package.json": "[]"}),
    "a deep manifest": lambda: package_of(files={"package.json": "[" * 10_000}),
    "a name that is a path": lambda: package_of(name="../demo"),
    "a name for a terminal": lambda: package_of(name="\x1b[31m"),
    "a version that is none": lambda: package_of(version="1 0"),
    "an agent that is no YAML": lambda: package_of(files={"agents/a.yaml": "trust: ["}),
    "an agent with unknown rules": lambda: package_of(files={"agents/a.yaml": "root: true"}),
    "an agent of aliases": lambda: package_of(files={"agents/a.yaml": "a: &a [1]\nb: [*a, *a]"}),
    "an agent for a terminal": lambda: package_of(files={"agents/a\x1b.yaml": AGENT}),
    "an agent of two files": lambda: package_of(files={"agents/a.yaml": AGENT, "agents/a.yml": AGENT}),
    "an agent with a NUL": lambda: package_of(files={"agents/a.yaml": "prompt: a\0b"}),
    "too many agents": lambda: package_of(files={f"agents/a{n}.yaml": "" for n in range(51)}),
    "a document that is no YAML": flow(md="---\na: [\n---\n"),
    "a document without a step": flow(md="# Nothing"),
    "a document that is no text": flow(md=b"---\ncurrentNodeId: \xff\n---\n"),
    "a document at no step": flow(graph_json=json.dumps({"nodes": [{"id": "x"}], "edges": []})),
    "a document against its schema": flow(schema_json=json.dumps({"required": ["never"]})),
    "a schema from elsewhere": flow(schema_json=json.dumps({"$ref": "http://127.0.0.1:9/schema"})),
    "a schema that refers to itself": flow(schema_json=json.dumps({"$ref": "#"})),
    "a schema of a megabyte": flow(schema_json=json.dumps({"description": "x" * 1_000_000})),
    "a graph that is none": flow(graph_json="{}"),
    "a graph that leads nowhere": flow(graph_json=json.dumps({**GRAPH, "edges": [{"from": "start", "to": "x"}]})),
    "a graph of a million edges": flow(graph_json=json.dumps({**GRAPH, "edges": [GRAPH["edges"][0]] * 6_000})),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
async def test_hostile_archive_is_rejected_quickly_with_the_reason(name: str) -> None:
    archive = HOSTILE[name]()
    started = time.process_time()

    with pytest.raises((BadArguments, TooLarge)) as refused:
        await package_in(archive)

    # The worker does the work, within its limits; almost none is done here.
    assert time.process_time() - started < 1
    assert refused.value.message
    assert not any(character in json.dumps(refused.value.fields) for character in "\x1b\0")


def test_valid_archives_of_every_kind_have_the_same_contents() -> None:
    files = {"docs/guide.md": "# Guide", "agents/planner.yaml": AGENT, "workflow.md": DOCUMENT}
    archives = package_of(files=files), tar_of(files=files), tar_of(files=files, gz=False)

    found = [read_archive_parts(archive) for archive in archives]

    assert [one["files"] for one in found] == [sorted((k, v.encode()) for k, v in files_of(files=files).items())] * 3
    assert found[0]["workflow"] == {"start": "start", "nodes": ["start"], "edges": [], "schema": None}


# Installed packages


@pytest.fixture
def packages(workspace: WorkspaceFixture) -> PackageInstaller:
    return workspace.engine.packages


async def test_failed_install_leaves_nothing_and_keeps_the_previous_version(
    workspace: WorkspaceFixture, packages: PackageInstaller
) -> None:
    tenant = workspace.tenant
    await packages.install(tenant, package_of(files={"a.md": "first"}))
    await workspace.stores.agents.create(tenant, name="demo.taken", definition="")
    bad = [archive() for archive in (HOSTILE["zip: '../evil'"], HOSTILE["zip: a link"], HOSTILE["tar: a link"])]

    for archive in (*bad, package_of(files={"agents/taken.yaml": AGENT}), package_of(name="other")):
        with pytest.raises(ToolcribError):
            await packages.install(tenant, archive)

    assert (await workspace.result("fs.read", path="@pkg/a.md"))["content"] == "first"
    above = workspace.settings.data_dir / "workspaces" / str(tenant.workspace_id)
    assert sorted(one.name for one in (above / "packages").rglob("*") if one.is_file()) == ["a.md", "package.json"]
    assert [one.version for one in await packages.rows.list(tenant)] == ["1.0.0"]


async def test_package_files_are_private_and_not_executable(
    workspace: WorkspaceFixture, packages: PackageInstaller
) -> None:
    await packages.install(workspace.tenant, package_of(files={"bin/run": "#!/bin/sh\n"}))

    root = workspace.engine.workspace_services.mounts.packages.current(workspace.caller.workspace_id)
    assert root is not None
    found = {path: path.lstat() for path in (root, *root.rglob("*"))}
    assert {os.stat(path.parent).st_mode & 0o077 for path in (root, root.parent)} == {0}
    assert all(stat.S_ISDIR(one.st_mode) or stat.S_IMODE(one.st_mode) == 0o644 for one in found.values())


async def test_packages_agent_has_at_most_guided_trust_and_lifts_no_protection(
    workspace: WorkspaceFixture, packages: PackageInstaller
) -> None:
    greedy = (
        "trust: autonomous\nmax_trust: autonomous\nunprotected_paths: ['.env']\n"
        "tool_permissions: {bash: {allowed: true}}\n"
    )
    tenant = workspace.tenant

    made = await packages.install(tenant, package_of(files={"agents/greedy.yaml": greedy}))

    assert made.agents == ("demo.greedy",)
    [agent] = await workspace.stores.agents.list(tenant)
    assert (agent.name, agent.package, agent.definition) == ("demo.greedy", "demo", greedy)
    assert (agent.rules.trust, agent.rules.max_trust, agent.rules.unprotected_paths) == (TrustLevel.GUIDED, None, ())


# Agents that leave their workflow

FREE = {
    "trust": "autonomous",
    "toolsets": ("mounts", "workspace", "history", "shell"),
    "tool_permissions": {
        tool: {"allowed": True}
        for tool in ("fs.write", "fs.apply_patch", "fs.read", "bash", "bash_start", "undo", "file_restore")
    },
}


@pytest.fixture
async def runner(workspace: WorkspaceFixture, packages: PackageInstaller) -> Caller:
    """An autonomous agent in a run of a workflow, after its first step."""
    tenant = workspace.tenant
    files = {"workflow.md": DOCUMENT, "workflow.graph.json": json.dumps(GRAPH)}
    await packages.install(tenant, package_of(files=files))
    document, workflow = await packages.workflow(tenant, "demo")
    agent = await workspace.agent(**FREE)
    session = await workspace.stores.sessions.create(tenant, agent_id=agent.agent_id, package="demo", workflow=workflow)
    await packages.begin(tenant, session.id, document)
    caller = replace(agent, session_id=session.id)
    moved = await workspace.call("fs.apply_patch", caller, path="@state/workflow.md", patch=_to("plan"))
    assert moved.result["ok"] is True, moved.result
    return caller


def _to(node: str) -> dict[str, Any]:
    return {"operation": "updateFrontmatter", "update": {"currentNodeId": {"set": node}}}


SKIPPED = DOCUMENT.replace("currentNodeId: start", "currentNodeId: nowhere")
LEAVING: dict[str, tuple[str, dict[str, Any]]] = {
    "patches it back": ("fs.apply_patch", {"path": "@state/workflow.md", "patch": _to("start")}),
    "writes it": ("fs.write", {"path": "@state/workflow.md", "content": SKIPPED}),
    "empties it": ("fs.write", {"path": "@state/workflow.md", "content": ""}),
    "breaks it": ("fs.write", {"path": "@state/workflow.md", "content": "---\na: [\n---\n"}),
    "spells its path otherwise": ("fs.write", {"path": "@state/./workflow.md", "content": SKIPPED}),
    "writes it with a command": ("bash", {"command": "sed -i s/plan/review/ /state/workflow.md; echo x > /state/y"}),
    "skips with a command": ("bash", {"command": "sed -i s/plan/nowhere/ /state/workflow.md"}),
    "removes it": ("bash", {"command": "rm /state/workflow.md"}),
    "moves it away": ("bash", {"command": "mv /state/workflow.md /state/old.md"}),
    "links it": ("bash", {"command": "cd /state; mv workflow.md old.md; ln -s old.md workflow.md"}),
}


@pytest.mark.parametrize("how", LEAVING)
async def test_no_tool_takes_an_agent_out_of_its_workflow(
    workspace: WorkspaceFixture, runner: Caller, how: str
) -> None:
    tool, arguments = LEAVING[how]
    document = workspace.mount(f"state/{runner.session_id}") / "workflow.md"
    before = document.read_text()
    assert "currentNodeId: plan" in before

    outcome = await workspace.call(tool, runner, **arguments)

    if how == "writes it with a command":
        # An edge leads there: whichever tool takes the step, it is a step of the workflow.
        assert "currentNodeId: review" in document.read_text()
        return
    assert not document.is_symlink()
    assert document.read_text() == before
    assert outcome.error is not None, outcome.result


async def test_agent_cannot_undo_a_step_and_a_person_can(workspace: WorkspaceFixture, runner: Caller) -> None:
    document = workspace.mount(f"state/{runner.session_id}") / "workflow.md"
    moved = await workspace.call("fs.apply_patch", runner, path="@state/workflow.md", patch=_to("review"))
    undone = {"calls": [str(moved.call_id)]}

    refused = await workspace.call("undo", runner, **undone)
    assert refused.error is not None, refused.result
    assert "currentNodeId: review" in document.read_text()
    await workspace.call("undo", replace(workspace.caller, session_id=runner.session_id), **undone)
    assert "currentNodeId: plan" in document.read_text()


async def test_background_process_writes_nothing_where_a_workflow_runs(
    workspace: WorkspaceFixture, runner: Caller
) -> None:
    state = workspace.mount(f"state/{runner.session_id}")
    before = (state / "workflow.md").read_text()
    command = (
        "cd /state; echo x > workflow.md; rm -f workflow.md; echo x > y; mv y workflow.md; echo over > /project/over"
    )

    started = await workspace.call("bash_start", runner, command=command)

    assert started.error is None, started.error
    async with asyncio.timeout(PATIENCE):
        while not (workspace.project / "over").exists():
            await workspace.call("bash_list", runner)
    await workspace.engine.background.close()
    assert (state / "workflow.md").read_text() == before
    assert not (state / "y").exists()
