"""Runs the server in a thread of the user's process, on loopback. Otherwise it is the same server."""

import asyncio
import logging
import os
import socket
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_urlsafe
from typing import TYPE_CHECKING

import structlog

from toolcrib.core.errors import Conflict
from toolcrib.core.ids import UserId, WorkspaceId
from toolcrib.local.state_directory import privately
from toolcrib.runtime.logged_errors import render_error

if TYPE_CHECKING:
    from toolcrib.api.api_services import ApiServices
    from toolcrib.api.app import Listener
    from toolcrib.settings import Settings
    from toolcrib.tools.tool import Tool

_END_SECONDS = 15
_MAX_LOG_BYTES = 5_000_000


@dataclass(frozen=True, slots=True)
class ServerOwner:
    """The user for whom the server runs, and the directory that it serves."""

    email: str
    full_name: str
    tree: Path
    name: str


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """The URL of the server, the key of its tokens, and the ids of its user and workspace.

    Every start creates a new ``secret``, so a token is useless after a restart. A program that now listens on our old
    port gains nothing from the tokens that it receives.
    """

    address: str
    secret: str = field(repr=False)
    user_id: UserId
    token_version: int
    workspace_id: WorkspaceId


@contextmanager
def serving(
    settings: "Settings", owner: ServerOwner, tools: Sequence["Tool"] = (), *, resumes: bool = True
) -> Iterator[ServerAddress]:
    """Runs a server while the context lasts, with ``tools`` in addition to the built-in ones.

    With ``resumes``, it goes on with the runs that an earlier one left.
    """
    thread = _ServerThread(settings, owner, tools, resumes=resumes)
    thread.start()
    try:
        yield thread.address.result()
    finally:
        thread.end()


class _ServerThread(threading.Thread):
    def __init__(self, settings: "Settings", owner: ServerOwner, tools: Sequence["Tool"], *, resumes: bool) -> None:
        super().__init__(name="toolcrib-server", daemon=True)
        self._settings = settings
        self._owner = owner
        self._tools = tools
        self._resumes = resumes
        # Set when the server is ready, or to the error that prevented it.
        self.address: Future[ServerAddress] = Future()
        self._server: Listener | None = None

    def end(self) -> None:
        if self._server is not None:
            self._server.should_exit = True
        self.join(_END_SECONDS)

    def run(self) -> None:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            try:
                runner.run(self._serve())
            except BaseException as failure:  # noqa: BLE001 - address.result() raises it
                if not self.address.done():
                    self.address.set_exception(failure)

    async def _serve(self) -> None:
        # Imported here: a command that needs no server should not load one.
        from toolcrib.api.app import listener
        from toolcrib.wiring.server import services

        async with services(self._settings, tools=self._tools, binds_logins=True, resumes=self._resumes) as opened:
            with socket.create_server(("127.0.0.1", 0), backlog=128) as listening:
                address = await _server_address(opened, self._owner, port=listening.getsockname()[1])
                self._server = listener(opened)
                self.address.set_result(address)
                await self._server.serve(sockets=[listening])


async def _server_address(services: "ApiServices", owner: ServerOwner, *, port: int) -> ServerAddress:
    """Finds or creates the user and the workspace in the database."""
    from toolcrib.api.passwords import PasswordHasher
    from toolcrib.providers.provider_registry import credentials_in
    from toolcrib.storage.users import ActingUser

    login = await services.accounts.find_login(owner.email)
    if login is None:
        # A random password that is not stored. The user logs in with the secrets file, others not at all. A cheap hash
        # is safe, because a password of this length cannot be guessed.
        unusable = PasswordHasher(iterations=1, lanes=1, memory_kib=8).hash(token_urlsafe(48))
        # The first start in another directory may have created the user at the same time.
        with suppress(Conflict):
            await services.accounts.create_user(email=owner.email, full_name=owner.full_name, password_hash=unusable)
        login = await services.accounts.find_login(owner.email)
    assert login is not None
    person = ActingUser(login.user_id)
    node, root_path = services.settings.node_name, str(owner.tree)
    workspace = await services.workspaces.find_by_root_path(person, root_path=root_path, node=node)
    if workspace is None:
        workspace = await services.workspaces.create(person, name=owner.name, node=node, root_path=root_path)
    # Not stored: a key that the person unsets must not be used any more.
    services.access.use_environment(login.user_id, credentials_in(os.environ))
    secret = services.settings.jwt_secret.get_secret_value()
    return ServerAddress(f"http://127.0.0.1:{port}", secret, login.user_id, login.token_version, workspace.id)


def _loop_factory() -> "type[asyncio.AbstractEventLoop] | None":
    with suppress(ImportError):
        import uvloop

        return uvloop.Loop
    return None


@contextmanager
def log_to(path: Path) -> Iterator[None]:
    """Logs to this file while the context lasts, so that the terminal shows only the conversation.

    Deletes an old file that has grown too large. If the program has configured logging itself, that configuration
    stays, and our lines are part of its log.
    """
    if path.exists() and path.stat().st_size > _MAX_LOG_BYTES:
        path.unlink()
    with open(path, "a", buffering=1, opener=privately) as file, ExitStack() as configured:
        root = logging.getLogger()
        if not root.handlers:
            handler = logging.StreamHandler(file)
            root.addHandler(handler)
            configured.callback(root.removeHandler, handler)
        if not structlog.is_configured():
            structlog.configure(
                processors=[
                    structlog.processors.add_log_level,
                    structlog.processors.TimeStamper(fmt="iso", utc=True),
                    render_error,
                    structlog.processors.JSONRenderer(default=str),
                ],
                logger_factory=structlog.PrintLoggerFactory(file=file),
                cache_logger_on_first_use=False,
            )
            configured.callback(structlog.reset_defaults)
        yield
