"""Opens local mode in a directory: finds or starts its server, and says how to speak to it.

One process serves a directory. Others that are opened there speak to that one; when it is gone, the next takes over.
"""

import hmac
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from uuid import UUID

from pydantic import SecretStr, ValidationError

from toolcrib.domain.errors import Misconfigured, NotFound
from toolcrib.domain.ids import UserId, WorkspaceId
from toolcrib.domain.platforms import require_linux
from toolcrib.local.database import Urls, database, named_in_environment
from toolcrib.local.directories import Directories, project_key
from toolcrib.local.locks import FileLock
from toolcrib.local.logs import log_to
from toolcrib.local.secrets import Secrets
from toolcrib.local.server import Standing, Whose, serving
from toolcrib.settings import Settings
from toolcrib.storage.health import OperationalError
from toolcrib.storage.processes import forget_those_of

if TYPE_CHECKING:
    from toolcrib.tools.tool import Tool

_WAIT_SECONDS = 60
_LOOK_EVERY = 0.05
_NAME_CHARACTERS = 200

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True, repr=False)
class Local:
    """A server for one directory, in this process or in another."""

    tree: Path
    standing: Standing
    settings_secret: str
    serves: bool
    log: Path

    @property
    def address(self) -> str:
        return self.standing.address

    @property
    def workspace_id(self) -> WorkspaceId:
        return self.standing.workspace_id

    def login_link(self) -> str:
        """An address at which a browser is logged in as the directory's owner, once and within two minutes."""
        from toolcrib.server.login_links import LoginLinks

        secret = LoginLinks(self.settings_secret).issue(self.standing.user_id, self.standing.token_version)
        origin = f"http://{_page_host(self.settings_secret)}:{urlsplit(self.address).port}"
        return f"{origin}/w/{self.workspace_id}#login={secret}"

    def token(self) -> str:
        """A token of the directory's owner. It lives for minutes; ask again for every request."""
        from toolcrib.server.tokens import AccessTokens

        return AccessTokens(self.settings_secret).issue(self.standing.user_id, self.standing.token_version)


@contextmanager
def open_local(directory: Path, *, tools: Sequence["Tool"] = (), tell: Tell = lambda _: None) -> Iterator[Local]:
    """Local mode in a directory, for as long as the context lasts, with ``tools`` besides our own.

    ``tell`` is told what takes a while.
    """
    require_linux()
    tree = _tree(directory)
    directories = Directories.of_user()
    _refuse_own_files(tree, directories)
    secrets = Secrets.kept(directories)
    project = directories.project(tree)
    lock, deadline = FileLock(project / "serving.lock"), time.monotonic() + _WAIT_SECONDS
    while not lock.try_take():
        if standing := _other_servers(project):
            if tools:
                raise Misconfigured(f"Another toolcrib serves {tree}, and it lacks your tools. End it, then try again.")
            yield Local(tree, standing, _jwt_secret(secrets), serves=False, log=project / "server.log")
            return
        if time.monotonic() > deadline:
            raise Misconfigured(f"Another toolcrib holds {tree} and does not answer. End it, then try again.")
        time.sleep(_LOOK_EVERY)
    try:
        with _ended_in_order(), _served(tree, directories, secrets, tools, tell) as local:
            yield local
    except OperationalError as error:
        where = "TOOLCRIB_DATABASE_URL names" if named_in_environment() else "Toolcrib keeps for you"
        raise Misconfigured(f"The database that {where} does not answer: {_first_line(error)}") from None
    finally:
        lock.release()


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


@contextmanager
def _served(
    tree: Path, directories: Directories, secrets: Secrets, tools: Sequence["Tool"], tell: Tell
) -> Iterator[Local]:
    project = directories.project(tree)
    note = project / "server.json"
    note.unlink(missing_ok=True)
    # Loading the program takes as long as starting the database does; so both are done at once.
    loading = threading.Thread(target=_load_server, daemon=True)
    loading.start()
    if named_in_environment() is None and not directories.cluster.exists():
        tell("Making a database for you. This is done once and takes a few seconds.")
    with database(directories, secrets) as urls:
        loading.join()
        settings = _settings(urls, secrets, tree, project)
        # We hold the directory's lock, so whoever served it before is dead, and their runs are ours.
        forget_those_of(settings.node, settings.system_url)
        whose = Whose(secrets.email, secrets.email.partition("@")[0], tree, _name(tree))
        with log_to(project / "server.log"), serving(settings, whose, tools) as standing:
            _write_note(note, standing)
            try:
                yield Local(tree, standing, _jwt_secret(secrets), serves=True, log=project / "server.log")
            finally:
                note.unlink(missing_ok=True)


def _load_server() -> None:
    for module in ("toolcrib.wiring", "toolcrib.server.listening"):
        import_module(module)


def _tree(directory: Path) -> Path:
    try:
        tree = directory.resolve(strict=True)
    except OSError:
        raise NotFound(f"There is no directory {directory}.") from None
    if not tree.is_dir():
        raise NotFound(f"{tree} is not a directory.")
    try:
        str(tree).encode()
    except UnicodeEncodeError:
        raise Misconfigured(f"The name {str(tree)!r} is not Unicode, so it cannot be kept. Rename it.") from None
    return tree


def _refuse_own_files(tree: Path, directories: Directories) -> None:
    """An agent that could read our files would hold our secrets."""
    if directories.base.is_relative_to(tree):
        raise Misconfigured(
            f"{tree} holds Toolcrib's own files ({directories.base}), which no agent may reach. "
            "Go into a project directory below it, or move them: TOOLCRIB_HOME=…"
        )
    if tree.is_relative_to(directories.base):
        raise Misconfigured(f"{tree} belongs to Toolcrib itself. Go into a project directory of yours.")


def _settings(urls: Urls, secrets: Secrets, tree: Path, project: Path) -> Settings:
    """As the environment says; what it does not say has a value that fits a single user on their own machine."""
    ours = {
        "database_url": urls.app,
        "system_database_url": urls.system,
        "node": f"local-{secrets.machine}-{project_key(tree)}",
        "data_dir": project,
        "jwt_secret": SecretStr(_jwt_secret(secrets)),
        "open_registration": False,
        "host": "127.0.0.1",
    }
    usual = {
        "audit_key": SecretStr(secrets.audit_key),
        "credentials_key": SecretStr(secrets.credentials_key),
        # The user's own network: a model or an MCP server on this machine or beside it is theirs to use.
        "private_model_hosts": ("*",),
        "private_mcp_hosts": ("*",),
        "pool_size": 6,
        # Nothing leaves this machine, and some browsers would keep no other cookies without HTTPS.
        "secure_cookies": False,
    }
    said = {name: value for name, value in usual.items() if f"TOOLCRIB_{name.upper()}" not in os.environ}
    try:
        settings = Settings(**ours, **said)  # type: ignore[arg-type]
    except ValidationError as error:
        wrong = "; ".join(f"TOOLCRIB_{str(one['loc'][0]).upper()}: {one['msg']}" for one in error.errors())
        raise Misconfigured(f"Settings are wrong: {wrong}") from None
    # Whatever other names the environment gives: the links of `toolcrib web` lead to this one.
    return settings.model_copy(update={"allowed_hosts": (*settings.allowed_hosts, _page_host(_jwt_secret(secrets)))})


def _jwt_secret(secrets: Secrets) -> str:
    return os.environ.get("TOOLCRIB_JWT_SECRET") or secrets.jwt_secret


def _page_host(secret: str) -> str:
    """The name by which browsers know the pages of this machine's user.

    Browsers take every name in `localhost` for this machine. They send cookies to all ports of a name: under one that
    nobody can guess, other programs of this machine that serve pages are sent none.
    """
    return f"{hmac.digest(secret.encode(), b'the name of the web pages', 'sha256').hex()[:24]}.localhost"


def _name(tree: Path) -> str:
    """The directory as its user would say it."""
    with suppress(RuntimeError):
        if tree.is_relative_to(Path.home()) and tree != Path.home():
            tree = Path("~") / tree.relative_to(Path.home())
    return str(tree).encode(errors="replace").decode().replace("\x00", "")[-_NAME_CHARACTERS:]


def _write_note(note: Path, standing: Standing) -> None:
    beside = note.with_suffix(".new")
    beside.write_text(json.dumps(asdict(standing), default=str))
    beside.replace(note)


def _other_servers(project: Path) -> Standing | None:
    """Where the process that holds the directory answers, if it does already."""
    try:
        said = json.loads((project / "server.json").read_text())
        standing = Standing(
            said["address"],
            UserId(UUID(said["user_id"])),
            said["token_version"],
            WorkspaceId(UUID(said["workspace_id"])),
        )
        port = urlsplit(standing.address).port
        with socket.create_connection(("127.0.0.1", port or 0), timeout=2):
            return standing
    except (OSError, ValueError, KeyError):
        return None


@contextmanager
def _ended_in_order() -> Iterator[None]:
    """Being told to end, or losing the terminal, leaves the context like any other way.

    Unless the program that we are part of has its own mind about it.
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
