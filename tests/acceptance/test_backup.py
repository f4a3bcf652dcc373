"""Backup drill: a backup of a running server, restored into a new database with an empty data directory."""

import json
import secrets
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import psycopg
import pytest

from tests.databases import migrated_database, new_database, urls_of
from tests.faults.server import Server, client_of
from tests.wait_until import PATIENCE

pytestmark = pytest.mark.xdist_group("backup")

PASSWORD = "a long enough phrase"
ADA = {"email": "ada@example.com", "password": PASSWORD}
FILES = {"/src/1.txt": "one\n", "/src/2.txt": "two\n" * 200, "/empty": ""}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    (tmp_path / "before").mkdir()
    with migrated_database() as name, Server(tmp_path / "before", urls_of(name)) as server:
        server.environment |= {"TOOLCRIB_AUDIT_SEAL_INTERVAL_SECONDS": "0.2", "TOOLCRIB_NODE_NAME": "drill"}
        server.environment["TOOLCRIB_OWNER_DATABASE_URL"] = urls_of(name).owner
        server.environment["TOOLCRIB_CREDENTIALS_ENCRYPTION_KEY"] = secrets.token_urlsafe(48)
        server.start()
        yield server


@contextmanager
def empty_server(server: Server, directory: Path, *, data_dir: Path | None = None) -> Iterator[Server]:
    """A server with the keys of the first, an empty database, and an empty disk unless it keeps one."""
    directory.mkdir()
    with new_database() as name:
        urls = urls_of(name)
        with Server(directory, urls) as after:
            own = {f"TOOLCRIB_{key}" for key in ("DATABASE_URL", "SYSTEM_DATABASE_URL", "DATA_DIR", "PORT")}
            kept = {key: value for key, value in after.environment.items() if key in own}
            after.environment = server.environment | kept | {"TOOLCRIB_OWNER_DATABASE_URL": urls.owner}
            if data_dir is not None:
                after.environment["TOOLCRIB_DATA_DIR"] = str(data_dir)
            yield after


def said(ended: subprocess.CompletedProcess[str], status: int = 0) -> str:
    assert ended.returncode == status, ended.stderr
    return ended.stdout + ended.stderr


async def log_in(http: httpx2.AsyncClient) -> dict[str, str]:
    login = await http.post("/auth/login", json=ADA)
    assert login.status_code == 200, login.text
    http.cookies.clear()
    return {"Authorization": f"Bearer {login.json()['access_token']}"}


async def prepared(server: Server) -> str:
    """Create an account with a workspace, files and stored credentials. Returns the workspace."""
    async with client_of(server) as http:
        await http.post("/auth/register", json=ADA)
        http.headers.update(await log_in(http))
        key = {"secret": "sk-something", "check": False}
        assert (await http.put("/credentials/anthropic", json=key)).is_success
        workspace: str = (await http.post("/workspaces", json={"name": "website"})).json()["id"]
        for path, content in FILES.items():
            await write(http, workspace, path, content)
    return workspace


async def write(http: httpx2.AsyncClient, workspace: str, path: str, content: str) -> None:
    call = {"tool": "write", "args": {"path": path, "content": content}}
    answer = await http.post(f"/workspaces/{workspace}/tools", json=call)
    assert answer.is_success, answer.text


async def assert_served(server: Server, workspace: str) -> None:
    async with client_of(server) as http:
        http.headers.update(await log_in(http))
        for path, content in FILES.items():
            call = {"tool": "read", "args": {"path": path}}
            answer = await http.post(f"/workspaces/{workspace}/tools", json=call)
            assert answer.json()["result"]["content"] == content


def until_sealed(owner_url: str) -> None:
    """Wait until every audit record is sealed."""
    tick = threading.Event()
    for _ in range(int(PATIENCE / 0.1)):
        with psycopg.connect(owner_url) as connection:
            row = connection.execute(
                "select max(position) <= (select max(last_position) from toolcrib.audit_seals) "
                "from toolcrib.audit_records"
            ).fetchone()
        if row is not None and row[0]:
            return
        tick.wait(0.1)
    raise AssertionError("The audit log was not sealed.")


@pytest.mark.long
async def test_backup_of_a_running_server_is_restored_into_a_new_database_and_an_empty_disk(
    server: Server, tmp_path: Path
) -> None:
    workspace = await prepared(server)
    until_sealed(server.environment["TOOLCRIB_OWNER_DATABASE_URL"])
    backup = tmp_path / "monday"

    made = said(server.command("backup", str(backup)))
    server.kill()
    shutil.rmtree(server.data_dir)
    with empty_server(server, tmp_path / "after") as after:
        restored = said(after.command("restore", "--from", str(backup)))
        verified = said(after.command("audit", "verify"))
        after.start()
        await assert_served(after, workspace)
        on_disk = (after.data_dir / "workspaces" / workspace / "project/src/2.txt").read_text()
        again = said(after.command("restore", "--from", str(backup)), 2)

    assert "1 workspaces with" in made
    for key in ("TOOLCRIB_JWT_SECRET", "TOOLCRIB_AUDIT_SEAL_KEY", "TOOLCRIB_CREDENTIALS_ENCRYPTION_KEY"):
        assert key in made
        assert server.environment[key] not in (backup / "manifest.json").read_text()
    assert "Missing key" not in restored
    assert "Not in the backup: The data directory" in restored
    assert "Node drill: 1 workspaces, of which 1 were restored" in restored
    assert "Audit log verified" in verified
    assert on_disk == FILES["/src/2.txt"]
    assert "is not empty" in again
    assert backup.stat().st_mode & 0o077 == 0


@pytest.mark.long
async def test_disk_that_is_newer_than_the_backup_needs_the_restore_to_be_declared(
    server: Server, tmp_path: Path
) -> None:
    workspace = await prepared(server)
    until_sealed(server.environment["TOOLCRIB_OWNER_DATABASE_URL"])
    backup = tmp_path / "monday"
    said(server.command("backup", str(backup)))
    async with client_of(server) as http:
        http.headers.update(await log_in(http))
        await write(http, workspace, "/later.txt", "written after the backup\n")
    until_sealed(server.environment["TOOLCRIB_OWNER_DATABASE_URL"])
    server.kill()

    with empty_server(server, tmp_path / "after", data_dir=server.data_dir) as after:
        restored = said(after.command("restore", "--from", str(backup)))
        undeclared = said(after.command("audit", "verify"), 1)
        said(after.command("audit", "accept-restore", "--yes"))
        verified = said(after.command("audit", "verify"))
        after.start()
        await assert_served(after, workspace)
        async with client_of(after) as http:
            http.headers.update(await log_in(http))
            call = {"tool": "read", "args": {"path": "/later.txt"}}
            later = (await http.post(f"/workspaces/{workspace}/tools", json=call)).json()["result"]

    assert "accept-restore" in restored
    assert "FAILED" in undeclared
    assert "Audit log verified" in verified
    # The disk is right: it was not overwritten, and its content is in the history as a change from outside.
    assert later["content"] == "written after the backup\n"


@pytest.mark.long
async def test_backup_with_the_disk_brings_ignored_files_back(server: Server, tmp_path: Path) -> None:
    workspace = await prepared(server)
    project = server.data_dir / "workspaces" / workspace / "project"
    async with client_of(server) as http:
        http.headers.update(await log_in(http))
        await write(http, workspace, "/.gitignore", "build/\n")
    (project / "build").mkdir()
    (project / "build" / "out").write_text("only on disk")
    (project / "build" / "link").symlink_to("/etc/hostname")
    backup = tmp_path / "monday"
    said(server.command("backup", str(backup), "--files"))
    server.kill()

    with empty_server(server, tmp_path / "after") as after:
        restored = said(after.command("restore", "--from", str(backup)))
        after.start()
        await assert_served(after, workspace)
        build = after.data_dir / "workspaces" / workspace / "project" / "build"
        found = ((build / "out").read_text(), str((build / "link").readlink()))

    assert "1 had their files" in restored
    assert found == ("only on disk", "/etc/hostname")


@pytest.mark.long
async def test_missing_keys_are_named_with_what_is_lost(server: Server, tmp_path: Path) -> None:
    await prepared(server)
    backup = tmp_path / "monday"
    said(server.command("backup", str(backup)))
    server.kill()

    with empty_server(server, tmp_path / "after") as after:
        for key in ("TOOLCRIB_AUDIT_SEAL_KEY", "TOOLCRIB_CREDENTIALS_ENCRYPTION_KEY"):
            after.environment[key] = secrets.token_urlsafe(48)
        restored = said(after.command("restore", "--from", str(backup)))

    missing = [line for line in restored.splitlines() if line.startswith("Missing key")]
    assert [line.split()[2] for line in missing] == [
        "TOOLCRIB_AUDIT_SEAL_KEY",
        "TOOLCRIB_CREDENTIALS_ENCRYPTION_KEY",
    ]
    assert "the audit log cannot be verified" in missing[0]
    assert "people must enter the keys" in missing[1]


async def test_damaged_backup_is_rejected_before_the_database_is_touched(server: Server, tmp_path: Path) -> None:
    backup = tmp_path / "monday"
    said(server.command("backup", str(backup)))
    damages: dict[str, Callable[[Path], None]] = {
        "is damaged": change_a_bit,
        "is incomplete": lambda copy: (copy / "database.dump").unlink(),
        "9999_later": lambda copy: change_manifest(copy, revision="9999_later"),
        "reads 1": lambda copy: change_manifest(copy, format=2),
        "is no backup": lambda copy: (copy / "manifest.json").unlink(),
    }

    with empty_server(server, tmp_path / "after") as after:
        refused = {}
        for number, (reason, damage) in enumerate(damages.items()):
            copy = tmp_path / f"copy-{number}"
            shutil.copytree(backup, copy)
            damage(copy)
            refused[reason] = said(after.command("restore", "--from", str(copy)), 2)
        untouched = schemas_of(after.environment["TOOLCRIB_OWNER_DATABASE_URL"])

    assert {reason: reason in text for reason, text in refused.items()} == dict.fromkeys(damages, True), refused
    assert untouched == []


def test_backup_overwrites_nothing(server: Server, tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").write_text("mine")

    refused = said(server.command("backup", str(tmp_path / "notes")), 2)

    assert "is not empty" in refused
    assert [one.name for one in (tmp_path / "notes").iterdir()] == ["mine.txt"]


def change_a_bit(backup: Path) -> None:
    dump = backup / "database.dump"
    changed = bytearray(dump.read_bytes())
    changed[len(changed) // 2] ^= 1
    dump.write_bytes(changed)


def change_manifest(backup: Path, **changes: object) -> None:
    manifest = backup / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | changes))


def schemas_of(owner_url: str) -> list[tuple[object, ...]]:
    with psycopg.connect(owner_url) as connection:
        return connection.execute("select nspname from pg_namespace where nspname in ('toolcrib', 'dbos')").fetchall()
