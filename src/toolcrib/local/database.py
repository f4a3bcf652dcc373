"""Which database local mode uses: the one that the environment names, or a private cluster. Brings it up to date."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

from toolcrib.local.cluster import DATABASE, OWNER, Cluster
from toolcrib.local.directories import Directories
from toolcrib.local.locks import held
from toolcrib.local.secrets import Secrets
from toolcrib.storage import migrate


@dataclass(frozen=True, slots=True, repr=False)
class Urls:
    """The database as the two roles that serve."""

    app: str
    system: str | None


@contextmanager
def database(directories: Directories, secrets: Secrets) -> Iterator[Urls]:
    """A database that runs and is up to date, for as long as the context lasts."""
    named = named_in_environment()
    if named is not None:
        if owner := os.environ.get("TOOLCRIB_OWNER_DATABASE_URL"):
            migrate.upgrade(owner, app_dsn=named.app, system_dsn=named.system or named.app)
        yield named
        return
    cluster = Cluster(directories, secrets)
    cluster.use()
    try:
        app = cluster.url(migrate.APP_ROLE, secrets.app_password)
        system = cluster.url(migrate.SYSTEM_ROLE, secrets.system_password)
        _bring_up_to_date(directories, cluster, secrets, app=app, system=system)
        with cluster.kept_running():
            yield Urls(app, system)
    finally:
        cluster.leave()


def named_in_environment() -> Urls | None:
    """``TOOLCRIB_DATABASE_URL``; or ``DATABASE_URL``, but only if it is meant for us.

    In a project directory ``DATABASE_URL`` is mostly the project's own database, in which we have no business: it
    counts if it names the role that Toolcrib serves with.
    """
    if ours := os.environ.get("TOOLCRIB_DATABASE_URL"):
        return Urls(ours, os.environ.get("TOOLCRIB_SYSTEM_DATABASE_URL"))
    anyones = os.environ.get("DATABASE_URL", "")
    try:
        is_ours = urlsplit(anyones).username == migrate.APP_ROLE
    except ValueError:
        is_ours = False
    return Urls(anyones, None) if is_ours else None


def _bring_up_to_date(directories: Directories, cluster: Cluster, secrets: Secrets, *, app: str, system: str) -> None:
    """As ``toolcrib db upgrade`` does; what it did last is noted, for finding nothing to do takes a while."""
    wanted, note = migrate.fingerprint(), directories.cluster / "toolcrib-schema"
    with held(directories.base / "upgrade.lock"):
        if note.exists() and note.read_text() == wanted:
            return
        migrate.ensure_database(cluster.url(OWNER, secrets.owner_password, "postgres"), DATABASE)
        migrate.upgrade(cluster.url(OWNER, secrets.owner_password), app_dsn=app, system_dsn=system)
        note.write_text(wanted)
