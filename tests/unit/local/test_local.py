"""What local mode decides before anything runs: its data directory, its database, and its user."""

import os
import stat
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from toolcrib.core.errors import Misconfigured
from toolcrib.core.ids import UserId, WorkspaceId, new_id
from toolcrib.local.in_process_server import ServerAddress
from toolcrib.local.local_mode import DatabaseUrls, LocalProject, LocalServer, _settings, named_in_environment
from toolcrib.local.postgres_cluster import PostgresCluster
from toolcrib.local.project_root import project_of
from toolcrib.local.state_directory import FileLock, LocalDirectories, LocalSecrets

ADA, HERS = UserId(new_id()), WorkspaceId(new_id())


@pytest.fixture
def directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalDirectories:
    monkeypatch.setenv("TOOLCRIB_HOME", str(tmp_path / "kept"))
    return LocalDirectories.of_user()


def test_files_are_kept_where_only_their_owner_has_access(directories: LocalDirectories) -> None:
    assert stat.S_IMODE(directories.base.stat().st_mode) == 0o700
    assert stat.S_IMODE(directories.sockets.stat().st_mode) == 0o700


def test_a_directory_that_others_can_enter_is_closed(directories: LocalDirectories) -> None:
    directories.base.chmod(0o755)

    LocalDirectories.of_user()

    assert stat.S_IMODE(directories.base.stat().st_mode) == 0o700


def test_a_socket_is_put_elsewhere_if_its_path_is_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLCRIB_HOME", str(tmp_path / ("long" * 30)))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))

    sockets = LocalDirectories.of_user().sockets

    assert sockets.parent == tmp_path
    assert stat.S_IMODE(sockets.stat().st_mode) == 0o700


def test_secrets_are_created_once_and_rejected_if_others_can_read_them(directories: LocalDirectories) -> None:
    first = LocalSecrets.kept(directories)
    again = LocalSecrets.kept(directories)
    directories.secrets.chmod(0o644)

    assert first == again
    assert first.audit_key not in repr(first)
    with pytest.raises(Misconfigured, match="chmod 600"):
        LocalSecrets.kept(directories)


def test_damaged_secrets_are_reported_and_not_replaced(directories: LocalDirectories) -> None:
    LocalSecrets.kept(directories)
    directories.secrets.write_text("{")

    with pytest.raises(Misconfigured, match="is damaged"):
        LocalSecrets.kept(directories)


def test_the_login_link_uses_an_allowed_host_whatever_the_environment_allows(
    directories: LocalDirectories, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLCRIB_ALLOWED_HOSTS", "crib.example.com")
    secrets, urls = LocalSecrets.kept(directories), DatabaseUrls("postgresql://nowhere", None)

    settings = _settings(urls, LocalProject(tmp_path, directories, secrets))
    path_state = ServerAddress("http://127.0.0.1:9", settings.jwt_secret.get_secret_value(), ADA, 0, HERS)
    link = LocalServer(tmp_path, path_state, settings.node_name, serves=True, log=tmp_path)

    assert urlsplit(link.login_link()).hostname in settings.allowed_hosts
    assert "crib.example.com" in settings.allowed_hosts


def test_root_is_rejected_with_the_reason(directories: LocalDirectories, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)

    with pytest.raises(Misconfigured, match="PostgreSQL does not run as root"):
        PostgresCluster(directories, LocalSecrets.kept(directories)).use()

    assert not directories.cluster.exists()


def test_a_password_is_always_quoted_in_a_url(directories: LocalDirectories) -> None:
    url = PostgresCluster(directories, LocalSecrets.kept(directories)).url("someone", "a/b@c?d")

    assert "a%2Fb%40c%3Fd" in url


@pytest.mark.parametrize(
    ("variables", "taken"),
    [
        ({}, None),
        ({"DATABASE_URL": "postgresql://shop:secret@db/shop"}, None),
        ({"DATABASE_URL": "mysql://shop@db/shop"}, None),
        ({"DATABASE_URL": "postgresql://["}, None),
        ({"DATABASE_URL": "postgresql://toolcrib_app@db/crib"}, "postgresql://toolcrib_app@db/crib"),
        (
            {"DATABASE_URL": "postgresql://shop@db/shop", "TOOLCRIB_DATABASE_URL": "postgresql://a@db/crib"},
            "postgresql://a@db/crib",
        ),
    ],
)
def test_the_database_of_the_users_project_is_not_used(
    variables: dict[str, str], taken: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DATABASE_URL", "TOOLCRIB_DATABASE_URL", "TOOLCRIB_SYSTEM_DATABASE_URL"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    found = named_in_environment()

    assert (found and found.app) == taken


def test_a_released_lock_can_be_acquired_by_another(tmp_path: Path) -> None:
    ours, theirs = FileLock(tmp_path / "lock"), FileLock(tmp_path / "lock")
    ours.take(shared=True)

    refused = theirs.try_take()
    ours.release()

    assert not refused
    assert theirs.try_take()
    theirs.release()


def test_a_pid_file_whose_pid_belongs_to_another_program_is_ignored(directories: LocalDirectories) -> None:
    cluster = PostgresCluster(directories, LocalSecrets.kept(directories))
    directories.cluster.mkdir()
    note = directories.cluster / "postmaster.pid"
    note.write_text(f"{os.getpid()}\n{directories.cluster}\n1\n5432\n\n\n\nready\n")

    believed = cluster._is_ready()
    cluster._forget_dead_server()

    assert not believed
    assert not note.exists()


@pytest.mark.parametrize(
    ("marks", "start", "expected"),
    [
        ([".git"], "src/deep", "."),
        ([".git", "vendored/.git"], "vendored/x", "vendored"),
        ([], "src", "src"),
        ([".git"], ".", "."),
    ],
)
def test_subdirectory_of_a_project_is_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, marks: list[str], start: str, expected: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    directories, project = LocalDirectories(tmp_path / "state"), tmp_path / "home" / "project"
    for name in (*marks, start):
        (project / name).mkdir(parents=True, exist_ok=True)

    assert project_of((project / start).resolve(), directories) == (project / expected).resolve()


def test_directory_that_was_opened_before_is_a_project_and_a_home_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path.resolve() / "home"
    (home / "notes" / "deep" / "er").mkdir(parents=True)
    (home / ".git").mkdir()
    monkeypatch.setenv("HOME", str(home))
    directories = LocalDirectories(tmp_path / "state")
    directories.project(home)

    assert project_of(home, directories) == home
    assert project_of(home / "notes" / "deep", directories) == home / "notes" / "deep"
    directories.project(home / "notes")
    assert project_of(home / "notes" / "deep" / "er", directories) == home / "notes"
    directories.project(home / "notes" / "deep")
    assert project_of(home / "notes" / "deep" / "er", directories) == home / "notes" / "deep"


def test_project_of_another_user_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shared" / ".git").mkdir(parents=True)
    (tmp_path / "shared" / "mine").mkdir()
    monkeypatch.setattr("os.getuid", lambda: (tmp_path.stat().st_uid) + 1)

    mine = (tmp_path / "shared" / "mine").resolve()
    assert project_of(mine, LocalDirectories(tmp_path / "state")) == mine
