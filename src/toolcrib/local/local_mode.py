"""Opens local mode in a directory: finds or starts its server, and connects to it.

One process serves a directory. Other processes connect to it. When it ends, the next one takes over.
"""

import hmac
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from secrets import token_urlsafe
from types import FrameType
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pydantic import SecretStr, TypeAdapter

from toolcrib.core.errors import Misconfigured, NotFound
from toolcrib.core.ids import WorkspaceId
from toolcrib.local.git_identity import git_identity, user_config_files
from toolcrib.local.in_process_server import ServerAddress, ServerOwner, log_to, serving
from toolcrib.local.postgres_cluster import DATABASE, OWNER, PostgresCluster
from toolcrib.local.project_root import project_of
from toolcrib.local.state_directory import FileLock, LocalDirectories, LocalSecrets, held, project_key, write_private
from toolcrib.local.toolchain import command_path, tool_directories, usable_directories
from toolcrib.runtime.process_setup import require_linux
from toolcrib.storage import migrate
from toolcrib.storage.database import OperationalError
from toolcrib.storage.server_processes import forget_those_of

if TYPE_CHECKING:
    from toolcrib.local.stored_history import StoredHistory
    from toolcrib.settings import Settings
    from toolcrib.tools.tool import Tool


@dataclass(frozen=True, slots=True, repr=False)
class DatabaseUrls:
    """The URLs of the database for the two server roles."""

    app: str
    system: str | None


@contextmanager
def database(
    directories: LocalDirectories, secrets: LocalSecrets, notify: Callable[[str], None] = lambda _: None
) -> Iterator[DatabaseUrls]:
    """Provides a migrated database while the context lasts.

    It is the one that the environment names, or else a private cluster.
    """
    named = named_in_environment()
    if named is not None:
        if owner := os.environ.get("TOOLCRIB_OWNER_DATABASE_URL"):
            _upgrade(owner, app=named.app, system=named.system or named.app)
        yield named
        return
    cluster = PostgresCluster(directories, secrets)
    cluster.use(notify)
    try:
        app = cluster.url(migrate.APP_ROLE, secrets.app_password)
        system = cluster.url(migrate.SYSTEM_ROLE, secrets.system_password)
        _bring_up_to_date(directories, cluster, secrets, app=app, system=system)
        with cluster.kept_running():
            yield DatabaseUrls(app, system)
    finally:
        cluster.leave()


def named_in_environment() -> DatabaseUrls | None:
    """Returns ``TOOLCRIB_DATABASE_URL``, or ``DATABASE_URL`` if it is meant for Toolcrib.

    In a project directory ``DATABASE_URL`` is usually the project's own database, which Toolcrib must not use. It
    counts only if its user is Toolcrib's server role.
    """
    if ours := os.environ.get("TOOLCRIB_DATABASE_URL"):
        return DatabaseUrls(ours, os.environ.get("TOOLCRIB_SYSTEM_DATABASE_URL"))
    anyones = os.environ.get("DATABASE_URL", "")
    try:
        is_ours = urlsplit(anyones).username == migrate.APP_ROLE
    except ValueError:
        is_ours = False
    return DatabaseUrls(anyones, None) if is_ours else None


def _bring_up_to_date(
    directories: LocalDirectories, cluster: PostgresCluster, secrets: LocalSecrets, *, app: str, system: str
) -> None:
    """Migrates as ``toolcrib db upgrade`` does. Stores the result, because even a check without changes is slow."""
    wanted, note = migrate.fingerprint(), directories.cluster / "toolcrib-schema"
    with held(directories.base / "upgrade.lock"):
        if note.exists() and note.read_text() == wanted:
            return
        migrate.ensure_database(cluster.url(OWNER, secrets.owner_password, "postgres"), DATABASE)
        _upgrade(cluster.url(OWNER, secrets.owner_password), app=app, system=system)
        write_private(note, wanted)


def _upgrade(owner: str, *, app: str, system: str) -> None:
    # Imported here: it is needed once.
    from toolcrib.runs import durable

    durable.upgrade(owner, app_dsn=app, system_dsn=system)


_WAIT_SECONDS = 60
_POLL_SECONDS = 0.05
_NAME_CHARACTERS = 200
# TCP_LISTEN in /proc/net/tcp.
_LISTENS = "0A"
# The file that tells other processes where the server is.
_ADDRESS = TypeAdapter(ServerAddress)

Notify = Callable[[str], None]


@dataclass(frozen=True, slots=True, repr=False)
class LocalServer:
    """A server for one directory, in this process or in another."""

    tree: Path
    server_address: ServerAddress
    node: str
    serves: bool
    log: Path

    @property
    def address(self) -> str:
        return self.server_address.address

    @property
    def workspace_id(self) -> WorkspaceId:
        return self.server_address.workspace_id

    def login_link(self) -> str:
        """Returns a URL that logs a browser in as the directory's owner. It works once, within two minutes."""
        from toolcrib.api.access_tokens import LoginLinks

        links = LoginLinks(self.server_address.secret, node=self.node)
        secret = links.issue(self.server_address.user_id, self.server_address.token_version)
        origin = f"http://{_page_host(self.server_address.secret)}:{urlsplit(self.address).port}"
        return f"{origin}/w/{self.workspace_id}#login={secret}"

    def token(self) -> str:
        """Returns an access token of the directory's owner. It expires in minutes: get one for each request."""
        from toolcrib.api.access_tokens import AccessTokens

        return AccessTokens(self.server_address.secret).issue(
            self.server_address.user_id, self.server_address.token_version
        )


@contextmanager
def open_local(
    directory: Path,
    *,
    finds_project: bool = False,
    tools: Sequence["Tool"] = (),
    notify: Notify = lambda _: None,
    resumes: bool = True,
) -> Iterator[LocalServer]:
    """Opens local mode in a directory while the context lasts, with ``tools`` in addition to the built-in ones.

    With ``finds_project``, a directory in a project is that project. ``notify`` receives a message before a slow step.
    With ``resumes``, a server that it starts goes on with the runs that an earlier one left.
    """
    found = _project(directory, finds_project=finds_project)
    tree, state = found.tree, found.state
    lock, deadline = FileLock(state / "serving.lock"), time.monotonic() + _WAIT_SECONDS
    while not lock.try_take():
        if server_address := _other_servers(state):
            if tools:
                raise Misconfigured(
                    f"Another toolcrib process serves {tree} without your tools. Stop it, then try again."
                )
            yield LocalServer(tree, server_address, found.node, serves=False, log=state / "server.log")
            return
        if time.monotonic() > deadline:
            raise Misconfigured(
                f"Another toolcrib process has locked {tree} and does not respond. Stop it, then try again."
            )
        time.sleep(_POLL_SECONDS)
    try:
        with (
            _connection_errors(found.directories),
            _ended_in_order(),
            _served(found, tools, notify, resumes=resumes) as local,
        ):
            yield local
    finally:
        lock.release()


@contextmanager
def open_settings(directory: Path, *, finds_project: bool = False) -> Iterator["Settings"]:
    """Provides the settings of a directory's server, with its database, while the context lasts. Starts no server."""
    found = _project(directory, finds_project=finds_project)
    with (
        _connection_errors(found.directories),
        _ended_in_order(),
        database(found.directories, found.secrets) as urls,
    ):
        yield _settings(urls, found)


@contextmanager
def open_history(directory: Path, *, finds_project: bool = False) -> Iterator["StoredHistory | None"]:
    """Opens the history of a directory while the context lasts, without a server.

    ``None`` if a process serves the directory, or only a server can tell: see ``stored_history``.
    """
    from toolcrib.local.stored_history import stored_history

    found = _project(directory, finds_project=finds_project)
    lock = FileLock(found.state / "serving.lock")
    is_new = named_in_environment() is None and not found.directories.cluster.exists()
    # While we hold the lock, no process begins to serve the directory.
    if is_new or not lock.try_take():
        yield None
        return
    try:
        with (
            _connection_errors(found.directories),
            _ended_in_order(),
            database(found.directories, found.secrets) as urls,
            stored_history(
                urls.app,
                urls.system or _as_system(urls.app),
                node=found.node,
                email=found.secrets.email,
                root_path=str(found.tree),
            ) as history,
        ):
            yield history
    finally:
        lock.release()


def _as_system(url: str) -> str:
    # Imported here, as below: our own cluster needs no settings to read from it.
    from toolcrib.settings import as_system_role

    return as_system_role(url)


@dataclass(frozen=True, slots=True, repr=False)
class LocalProject:
    """A project directory of this user, and where its state is."""

    tree: Path
    directories: LocalDirectories
    secrets: LocalSecrets

    @property
    def state(self) -> Path:
        """The directory for the lock, log and other files of the project."""
        return self.directories.project(self.tree)

    @property
    def node(self) -> str:
        return f"local-{self.secrets.machine}-{project_key(self.tree)}"


def _project(directory: Path, *, finds_project: bool) -> LocalProject:
    require_linux()
    tree = _tree(directory)
    directories = LocalDirectories.of_user()
    if finds_project:
        tree = project_of(tree, directories)
    _reject_own_files(tree, directories)
    return LocalProject(tree, directories, LocalSecrets.kept(directories))


@contextmanager
def _connection_errors(directories: LocalDirectories) -> Iterator[None]:
    """Says which database cannot be reached."""
    try:
        yield
    except OperationalError as error:
        where = "at TOOLCRIB_DATABASE_URL" if named_in_environment() else f"in {directories.cluster}"
        reason = str(error).strip().partition("\n")[0]
        raise Misconfigured(f"Cannot connect to the database {where}: {reason}") from None


@contextmanager
def _served(found: LocalProject, tools: Sequence["Tool"], notify: Notify, *, resumes: bool) -> Iterator[LocalServer]:
    tree, directories, secrets, project = found.tree, found.directories, found.secrets, found.state
    note = project / "server.json"
    note.unlink(missing_ok=True)
    # Loading the server takes as long as starting the database, so both run in parallel.
    loading = threading.Thread(target=_load_server, daemon=True)
    loading.start()
    if named_in_environment() is None and not directories.cluster.exists():
        notify("Creating a database. This happens once and takes a few seconds.")
    with database(directories, secrets, notify) as urls:
        loading.join()
        settings = _settings(urls, found)
        # We hold the lock of the directory, so the process that served it before is dead. Its runs are ours.
        forget_those_of(settings.node_name, settings.system_url)
        owner = ServerOwner(secrets.email, secrets.email.partition("@")[0], tree, _name(tree))
        with (
            log_to(project / "server.log"),
            serving(settings, owner, tools, resumes=resumes) as server_address,
        ):
            write_private(note, _ADDRESS.dump_json(server_address).decode())
            try:
                yield LocalServer(tree, server_address, settings.node_name, serves=True, log=project / "server.log")
            finally:
                note.unlink(missing_ok=True)


def _load_server() -> None:
    for module in ("toolcrib.wiring.server", "toolcrib.api.app"):
        import_module(module)


def _tree(directory: Path) -> Path:
    try:
        tree = directory.resolve(strict=True)
    except OSError:
        raise NotFound(f"Directory {directory} does not exist.") from None
    if not tree.is_dir():
        raise NotFound(f"{tree} is not a directory.")
    try:
        str(tree).encode()
    except UnicodeEncodeError:
        raise Misconfigured(f"The path {str(tree)!r} is not valid Unicode. Rename the directory.") from None
    return tree


def _reject_own_files(tree: Path, directories: LocalDirectories) -> None:
    """Rejects a directory that overlaps our own files: an agent there could read our secrets."""
    if directories.base.is_relative_to(tree):
        raise Misconfigured(
            f"{tree} contains Toolcrib's own files ({directories.base}), which agents must not access. "
            "Use a project directory below it, or move the files with TOOLCRIB_HOME=…"
        )
    if tree.is_relative_to(directories.base):
        raise Misconfigured(f"{tree} is part of Toolcrib's own files. Use a project directory.")


def _settings(urls: DatabaseUrls, found: LocalProject) -> "Settings":
    """Loads the settings from the environment, with defaults for a single user on their own machine."""
    from toolcrib.settings import load_settings

    tree, secrets, project = found.tree, found.secrets, found.state
    secret = token_urlsafe(48)
    ours = {
        "database_url": urls.app,
        "system_database_url": urls.system,
        "node_name": found.node,
        "data_dir": project,
        "jwt_secret": SecretStr(secret),
        "open_registration": False,
        # This disk is its user's, and so are those of others.
        "take_over_homes": False,
        "host": "127.0.0.1",
    }
    usual: dict[str, object] = {
        "audit_seal_key": SecretStr(secrets.audit_key),
        "credentials_encryption_key": SecretStr(secrets.credentials_key),
        # The user may use a model or an MCP server on this machine or in their network.
        "allowed_private_model_hosts": ("*",),
        "allowed_private_mcp_hosts": ("*",),
        "pool_size": 6,
        "git_config_files": user_config_files(),
        "tool_dirs": tool_directories(Path.home()),
        "command_cache_bytes": 5_000_000_000,
        # The traffic stays on this machine. Without HTTPS, some browsers do not keep secure cookies.
        "secure_cookies": False,
        # All requests are the user's own.
        "access_log": False,
    }
    if (author := git_identity(tree)) is not None:
        usual |= {"git_author_name": author[0], "git_author_email": author[1]}
    data = {name: value for name, value in usual.items() if f"TOOLCRIB_{name.upper()}" not in os.environ}
    settings = load_settings(**ours, **data)
    directories = usable_directories(settings.tool_dirs, apart_from=(tree, project.parent.parent))
    return settings.model_copy(
        update={
            # Added to the hosts of the environment: the links of `toolcrib web` use this one.
            "allowed_hosts": (*settings.allowed_hosts, _page_host(secret)),
            "tool_dirs": directories,
            "command_path": settings.command_path or command_path(os.environ.get("PATH", ""), directories),
        }
    )


def _page_host(secret: str) -> str:
    """Returns the host name of the web UI.

    Browsers resolve all names below `localhost` to this machine, and send a cookie to all ports of its host. With a
    host name that cannot be guessed, other programs that serve pages on this machine do not receive our cookies.
    """
    return f"{hmac.digest(secret.encode(), b'the name of the web pages', 'sha256').hex()[:24]}.localhost"


def _name(tree: Path) -> str:
    """Returns the directory as its user would write it, with ``~`` for their home."""
    with suppress(RuntimeError):
        if tree.is_relative_to(Path.home()) and tree != Path.home():
            tree = Path("~") / tree.relative_to(Path.home())
    return str(tree).encode(errors="replace").decode().replace("\x00", "")[-_NAME_CHARACTERS:]


def _other_servers(project: Path) -> ServerAddress | None:
    """Returns the address of the process that serves the directory, if it is ready."""
    try:
        server_address = _ADDRESS.validate_json((project / "server.json").read_bytes())
        port = urlsplit(server_address.address).port or 0
        with socket.create_connection(("127.0.0.1", port), timeout=2):
            return server_address if _is_listened_on_by_us(port) else None
    except (OSError, ValueError):
        return None


def _is_listened_on_by_us(port: int) -> bool:
    """Whether a process of this user listens on the port. Another user's must not receive a token or be trusted."""
    address = int.from_bytes(socket.inet_aton("127.0.0.1"), sys.byteorder)
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        facts = line.split()
        if facts[1] == f"{address:08X}:{port:04X}" and facts[3] == _LISTENS:
            return int(facts[7]) == os.getuid()
    return False


@contextmanager
def _ended_in_order() -> Iterator[None]:
    """Exits the context in order on SIGTERM and SIGHUP.

    Keeps the handlers that the program has set itself.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, _: FrameType | None) -> None:
        sys.exit(128 + number)

    ours = [one for one in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(one) is signal.SIG_DFL]
    for one in ours:
        signal.signal(one, leave)
    try:
        yield
    finally:
        for one in ours:
            signal.signal(one, signal.SIG_DFL)
