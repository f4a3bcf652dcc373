"""Roles belong to a whole PostgreSQL cluster: two installations in one do not disturb each other."""

from collections.abc import Iterator
from dataclasses import dataclass

import psycopg
import pytest

from toolcrib.core.errors import Misconfigured
from toolcrib.local.postgres_cluster import OWNER, PostgresCluster
from toolcrib.local.state_directory import LocalDirectories, LocalSecrets
from toolcrib.runs import durable
from toolcrib.settings import as_system_role
from toolcrib.storage import migrate
from toolcrib.storage.database import Database
from toolcrib.storage.users import UserStore

pytestmark = pytest.mark.xdist_group("database-roles")


@dataclass(frozen=True)
class Installation:
    """A database in the cluster, with the URLs of its owner and its server."""

    owner: str
    app: str

    @property
    def system(self) -> str:
        return as_system_role(self.app)

    def upgrade(self) -> None:
        durable.upgrade(self.owner, app_dsn=self.app, system_dsn=self.app)

    async def find_login(self, email: str) -> object:
        """Use both roles."""
        async with Database.open(self.app, self.system, pool_size=2) as database, database.as_system():
            return await UserStore(database).find_login(email)

    async def create_user(self, email: str) -> None:
        async with Database.open(self.app, self.system, pool_size=2) as database:
            await UserStore(database).create_user(email=email, full_name=None, password_hash="x")


@dataclass(frozen=True)
class Cluster:
    """A cluster that checks passwords."""

    cluster: PostgresCluster
    secrets: LocalSecrets

    def installation(self, name: str, *, role: str, password: str) -> Installation:
        """Create an empty database."""
        migrate.ensure_database(self.cluster.url(OWNER, self.secrets.owner_password, "postgres"), name)
        return Installation(
            self.cluster.url(OWNER, self.secrets.owner_password, name), self.cluster.url(role, password, name)
        )


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directories = LocalDirectories(tmp_path_factory.mktemp("roles"))
    secrets = LocalSecrets.kept(directories)
    opened = PostgresCluster(directories, secrets)
    opened.use()
    try:
        yield Cluster(opened, secrets)
    finally:
        opened.leave()


async def test_two_installations_in_one_cluster_both_keep_working(cluster: Cluster) -> None:
    first = cluster.installation("crib", role="toolcrib_app", password="one password")
    second = cluster.installation("crib2", role="crib2_app", password="another password")
    first.upgrade()
    await first.create_user("ada@example.com")

    second.upgrade()
    await second.create_user("grace@example.com")
    first.upgrade()
    second.upgrade()

    assert [await first.find_login(one) is not None for one in ("ada@example.com", "grace@example.com")] == [
        True,
        False,
    ]
    assert [await second.find_login(one) is not None for one in ("ada@example.com", "grace@example.com")] == [
        False,
        True,
    ]
    assert [migrate.installed_roles(one.owner).prefix for one in (first, second)] == ["toolcrib", "crib2"]


def test_roles_of_one_installation_can_do_nothing_in_the_other(cluster: Cluster) -> None:
    first = cluster.installation("left", role="left_app", password="one password")
    second = cluster.installation("right", role="right_app", password="another password")
    first.upgrade()
    second.upgrade()

    for stranger in ("right_app", "right_system"):
        url = cluster.cluster.url(stranger, "another password", "left")
        with psycopg.connect(url) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("select from toolcrib.users")
    with psycopg.connect(first.owner) as connection:
        owners = connection.execute(
            "select distinct proowner::regrole::text from pg_proc "
            "where pronamespace = 'toolcrib'::regnamespace and prosecdef"
        ).fetchall()
        policies = connection.execute("select distinct unnest(roles)::text from pg_policies order by 1").fetchall()
    assert owners == [("left_definer",)]
    assert policies == [("left_app",), ("left_definer",), ("left_system",)]


async def test_password_of_another_installation_is_not_overwritten(cluster: Cluster) -> None:
    first = cluster.installation("taken", role="taken_app", password="one password")
    second = cluster.installation("intruder", role="taken_app", password="another password")
    first.upgrade()

    with pytest.raises(Misconfigured, match=r"taken_app is in use by another installation, in database taken"):
        second.upgrade()

    assert await first.find_login("ada@example.com") is None
    # With the same password, a copy of the database can have the same roles.
    copy = cluster.installation("copy", role="taken_app", password="one password")
    copy.upgrade()
    first.upgrade()
    assert await copy.find_login("ada@example.com") is None


def test_roles_stay_what_they_were_and_have_the_usual_names(cluster: Cluster) -> None:
    made = cluster.installation("steady", role="steady_app", password="one password")
    made.upgrade()

    with pytest.raises(Misconfigured, match="with the role steady_app, and the URL has other_app"):
        cluster.installation("steady", role="other_app", password="one password").upgrade()
    with pytest.raises(Misconfigured, match="must end with _app"):
        cluster.installation("odd", role="odd", password="one password").upgrade()
    # Without a URL of the server, an upgrade keeps the roles and their passwords.
    durable.upgrade(made.owner)
    assert migrate.installed_roles(made.owner).app == "steady_app"


async def test_new_password_of_the_only_installation_is_set(cluster: Cluster) -> None:
    made = cluster.installation("renewed", role="renewed_app", password="one password")
    made.upgrade()
    changed = cluster.installation("renewed", role="renewed_app", password="another password")

    changed.upgrade()

    assert await changed.find_login("ada@example.com") is None
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(made.app)
