"""Backups: a dump of one snapshot of the database, with a manifest that says what is in it and what is not."""

import hmac
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import file_digest
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Final

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from pydantic import TypeAdapter, ValidationError

from toolcrib.core.errors import BadArguments, Conflict, Misconfigured, NotFound
from toolcrib.storage.migrate import known_revisions, newest_revision

FORMAT: Final = 1
MANIFEST: Final = "manifest.json"
DUMP: Final = "database.dump"
DISK: Final = "data.tar"
# Made by a server when it starts, or only valid together with the disk as it is now.
_NOT_ON_DISK: Final = ("./staging", "./audit-anchor.json", "./audit-verified.json")
_SNAPSHOT: Final = "begin isolation level repeatable read read only"
_FACTS: Final = """
select (select version_num from toolcrib.alembic_version), pg_export_snapshot(),
       array(select key_id from toolcrib.provider_credentials
             union select key_id from toolcrib.mcp_servers where key_id is not null order by 1),
       jsonb_build_object(
           'users', (select count(*) from toolcrib.users),
           'workspaces', (select count(*) from toolcrib.workspaces),
           'files', (select count(*) from toolcrib.files),
           'versions', (select count(*) from toolcrib.versions),
           'blobs', (select count(*) from toolcrib.blobs),
           'sessions', (select count(*) from toolcrib.sessions),
           'messages', (select count(*) from toolcrib.messages),
           'audit_records', (select count(*) from toolcrib.audit_records),
           'audit_seals', (select count(*) from toolcrib.audit_seals))
"""
# Of its own installation. An upgrade creates them for the roles of this one.
_POLICY: Final = " POLICY "
_KEY_ID: Final = b"toolcrib backup key id"
# tar: files changed while they were read.
_TAR_CHANGED: Final = 1


@dataclass(frozen=True, slots=True)
class BackupFile:
    """A file of a backup."""

    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class RequiredKey:
    """A key that is not in the backup and must be kept elsewhere. ``ids`` tell keys apart and reveal nothing."""

    setting: str
    without_it: str
    ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BackupManifest:
    """What a backup is."""

    format: int
    created_at: datetime
    toolcrib: str
    revision: str
    postgres: int
    node: str | None
    rows: Mapping[str, int]
    files: Mapping[str, BackupFile]
    keys: tuple[RequiredKey, ...]
    not_included: tuple[str, ...] = field(default=())

    @classmethod
    def load(cls, directory: Path) -> "BackupManifest":
        """Load the manifest of a backup.

        Raises:
            NotFound: There is no backup.
            Misconfigured: The manifest is damaged, or of a newer program.
        """
        try:
            text = (directory / MANIFEST).read_bytes()
        except FileNotFoundError:
            raise NotFound(f"{directory} is no backup: it has no {MANIFEST}.") from None
        try:
            manifest = _JSON.validate_json(text)
        except ValidationError:
            raise Misconfigured(f"{directory / MANIFEST} is damaged, or a newer Toolcrib made it.") from None
        if manifest.format != FORMAT:
            raise Misconfigured(f"{directory} has the format {manifest.format}; this program reads {FORMAT}.")
        return manifest

    def verify(self, directory: Path) -> None:
        """Compare the files with their checksums, and the schema's revision with those of this program.

        Raises:
            Misconfigured: A file is missing or differs, or a newer program made the backup.
        """
        for name, known in self.files.items():
            path = directory / name
            if not path.is_file():
                raise Misconfigured(f"The backup is incomplete: {path} is missing.")
            found = _described(path)
            if found != known:
                raise Misconfigured(
                    f"The backup is damaged: {path} has {found.bytes:,} bytes with SHA-256 {found.sha256[:16]}…, and "
                    f"the manifest says {known.bytes:,} bytes with {known.sha256[:16]}…. Use another backup."
                )
        if self.revision not in known_revisions():
            raise Misconfigured(
                f"The backup has the schema's revision {self.revision}, and this program knows none after "
                f"{newest_revision()}. Restore it with Toolcrib {self.toolcrib} or newer."
            )


_JSON = TypeAdapter(BackupManifest)


def key_id(secret: str) -> str:
    """Return what tells a random key from others, and cannot be used to find it."""
    return hmac.digest(secret.encode(), _KEY_ID, "sha256").hex()[:16]


def server_major(owner_dsn: str) -> int:
    """Return the major version of a database server."""
    with psycopg.connect(owner_dsn) as connection:
        return connection.info.server_version // 10_000


def create_backup(
    owner_dsn: str,
    directory: Path,
    *,
    pg_dump: Path,
    toolcrib: str,
    node: str | None,
    keys: Callable[[Sequence[str]], Sequence[RequiredKey]],
    data_dir: Path | None = None,
) -> BackupManifest:
    """Write a backup to a new directory. Until it is complete, it has another name.

    Args:
        keys: Returns the keys that the installation needs, from the ids of those that encrypted rows of the database.
        data_dir: The data directory of this node, if it is to be in the backup.

    Raises:
        Conflict: There is something in the directory.
        Misconfigured: A program failed, or the database has no schema.
    """
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise Conflict(f"{directory} is not empty. Name a new directory for the backup.")
    partial = directory.with_name(f"{directory.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(mode=0o700, parents=True)
    with psycopg.connect(owner_dsn, autocommit=True) as connection:
        connection.execute(_SNAPSHOT)
        revision, snapshot, rows, encrypted_with = _facts(connection)
        dump_database(owner_dsn, partial / DUMP, pg_dump=pg_dump, snapshot=snapshot)
        major = connection.info.server_version // 10_000
    not_included = [] if data_dir else ["The data directory: ignored files, files above the size limit, the trash"]
    if data_dir is not None:
        _pack(data_dir, partial / DISK)
    names = [name for name in (DUMP, DISK) if (partial / name).exists()]
    manifest = BackupManifest(
        format=FORMAT,
        created_at=datetime.now(UTC),
        toolcrib=toolcrib,
        revision=revision,
        postgres=major,
        node=node,
        rows=rows,
        files={name: _described(partial / name) for name in names},
        keys=tuple(keys(encrypted_with)),
        not_included=tuple(not_included),
    )
    (partial / MANIFEST).write_bytes(_JSON.dump_json(manifest, indent=2) + b"\n")
    _sync(*(partial / name for name in (*names, MANIFEST)), partial)
    with suppress(FileNotFoundError):
        directory.rmdir()
    partial.rename(directory)
    _sync(directory.parent)
    return manifest


def dump_database(owner_dsn: str, dump: Path, *, pg_dump: Path, snapshot: str | None = None) -> None:
    """Write a dump of a database to a file that only its owner can read.

    Raises:
        Misconfigured: The program failed.
    """
    as_of = [] if snapshot is None else [f"--snapshot={snapshot}"]
    # Created here, for its mode: the program only writes to it.
    os.close(os.open(dump, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600))
    _run([pg_dump, "--format=custom", *as_of, f"--file={dump}"], owner_dsn)
    _sync(dump)


def load_dump(owner_dsn: str, dump: Path, *, pg_restore: Path) -> None:
    """Load a dump into an empty database, all of it or nothing.

    Afterwards an upgrade creates the roles, and the policies for them.

    Raises:
        Conflict: The database is not empty.
        Misconfigured: The program failed.
    """
    with psycopg.connect(owner_dsn) as connection:
        row = connection.execute(
            "select current_database(), exists (select from pg_namespace where nspname in ('toolcrib', 'dbos'))"
        ).fetchone()
    if row is None or row[1]:
        raise Conflict(f"The database {row and row[0]} is not empty. Create another one, and name it in --owner-url.")
    listed = _run([pg_restore, "--list", dump])
    how = ["--exit-on-error", "--single-transaction", "--no-owner", "--no-privileges"]
    with NamedTemporaryFile("w", prefix="toolcrib-restore-") as entries:
        entries.write("".join(line for line in listed.splitlines(keepends=True) if _POLICY not in line))
        entries.flush()
        _run([pg_restore, *how, f"--use-list={entries.name}", dump], owner_dsn)


def verify_rows(owner_dsn: str, manifest: BackupManifest) -> None:
    """Compare a restored database with the manifest.

    Raises:
        Misconfigured: Something is missing.
    """
    with psycopg.connect(owner_dsn) as connection:
        _, _, rows, _ = _facts(connection)
    if wrong := {name: (rows.get(name), count) for name, count in manifest.rows.items() if rows.get(name) != count}:
        texts = [f"{name}: {found} rows, and the backup had {count}" for name, (found, count) in wrong.items()]
        raise Misconfigured(f"The restored database differs from the backup: {'; '.join(texts)}.")


def unpack_disk(directory: Path, data_dir: Path) -> None:
    """Restore the data directory of a verified backup.

    Raises:
        Conflict: There is something in it.
    """
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    if any(data_dir.iterdir()):
        raise Conflict(f"{data_dir} is not empty. Move it away, or name another one in TOOLCRIB_DATA_DIR.")
    _run([_tar(), "--extract", "--preserve-permissions", f"--directory={data_dir}", f"--file={directory / DISK}"])


def _facts(connection: psycopg.Connection) -> tuple[str, str, dict[str, int], list[str]]:
    """Return the revision, the name of the snapshot, the number of rows, and the keys that encrypted some."""
    row = connection.execute("select to_regclass('toolcrib.alembic_version') is not null").fetchone()
    if row is None or not row[0]:
        raise Misconfigured("The database has no Toolcrib schema: there is nothing to back up.")
    found = connection.execute(_FACTS).fetchone()
    assert found is not None
    revision, snapshot, encrypted_with, rows = found
    return str(revision), str(snapshot), dict(rows), list(encrypted_with)


def _run(command: Sequence[str | Path], dsn: str | None = None) -> str:
    """Run a program. The password is not among its arguments, which all users of the machine see."""
    environment = dict(os.environ)
    arguments = [*command]
    if dsn is not None:
        if password := conninfo_to_dict(dsn).get("password"):
            environment["PGPASSWORD"] = str(password)
        arguments.insert(1, f"--dbname={_without_password(dsn)}")
    ended = subprocess.run(  # noqa: S603 - programs that we found ourselves
        arguments, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if ended.returncode:
        # The first lines have the error; after them comes the statement.
        text = "\n".join(f"  {line}" for line in ended.stderr.strip().splitlines()[:8])
        raise Misconfigured(f"{Path(command[0]).name} failed:\n{text}")
    return ended.stdout


def _without_password(dsn: str) -> str:
    return make_conninfo("", **{name: value for name, value in conninfo_to_dict(dsn).items() if name != "password"})


def _pack(data_dir: Path, file: Path) -> None:
    """Pack a data directory, which a server may be using. GNU tar follows no link that appears meanwhile."""
    if not data_dir.is_dir():
        raise NotFound(f"The data directory {data_dir} does not exist.")
    if file.resolve().is_relative_to(data_dir.resolve()):
        raise BadArguments({"directory": "The backup must not be inside the data directory"})
    excluded = [f"--exclude={name}" for name in _NOT_ON_DISK]
    how = ["--create", "--sparse", "--ignore-failed-read", "--anchored", *excluded, f"--file={file}"]
    ended = subprocess.run(  # noqa: S603 - a program that we found ourselves
        [_tar(), *how, f"--directory={data_dir}", "."],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode not in (0, _TAR_CHANGED):
        raise Misconfigured(f"tar failed:\n{ended.stderr.strip()[-2_000:]}")
    file.chmod(0o600)


def _tar() -> Path:
    if found := shutil.which("tar"):
        return Path(found)
    raise Misconfigured("The program tar was not found. Install it: apt install tar")


def _described(path: Path) -> BackupFile:
    with path.open("rb") as file:
        return BackupFile(os.fstat(file.fileno()).st_size, file_digest(file, "sha256").hexdigest())


def _sync(*paths: Path) -> None:
    for path in paths:
        with _descriptor(path) as opened:
            os.fsync(opened)


@contextmanager
def _descriptor(path: Path) -> Iterator[int]:
    opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield opened
    finally:
        os.close(opened)
