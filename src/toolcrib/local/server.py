"""The server inside the user's own process: in a thread, on loopback, the same in all else."""

import asyncio
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_urlsafe
from typing import TYPE_CHECKING

from toolcrib.domain.errors import Conflict
from toolcrib.domain.ids import UserId, WorkspaceId
from toolcrib.settings import Settings

if TYPE_CHECKING:
    from toolcrib.server.listening import Listener
    from toolcrib.server.services import Services
    from toolcrib.tools.tool import Tool

_END_SECONDS = 15


@dataclass(frozen=True, slots=True)
class Whose:
    """For whom the server runs, and which directory it is about."""

    email: str
    full_name: str
    tree: Path
    name: str


@dataclass(frozen=True, slots=True)
class Standing:
    """Where the server answers, and what it knows its person and their directory by."""

    address: str
    user_id: UserId
    token_version: int
    workspace_id: WorkspaceId


@contextmanager
def serving(settings: Settings, whose: Whose, tools: Sequence["Tool"] = ()) -> Iterator[Standing]:
    """A server that answers, for as long as the context lasts; ``tools`` are added to our own."""
    thread = _Thread(settings, whose, tools)
    thread.start()
    try:
        yield thread.standing()
    finally:
        thread.end()


class _Thread(threading.Thread):
    def __init__(self, settings: Settings, whose: Whose, tools: Sequence["Tool"]) -> None:
        super().__init__(name="toolcrib-server", daemon=True)
        self._settings = settings
        self._whose = whose
        self._tools = tools
        self._ready = threading.Event()
        self._standing: Standing | None = None
        self._failure: BaseException | None = None
        self._server: Listener | None = None

    def standing(self) -> Standing:
        """Once it answers; raises what kept it from doing so."""
        self._ready.wait()
        if self._failure is not None:
            raise self._failure
        assert self._standing is not None
        return self._standing

    def end(self) -> None:
        if self._server is not None:
            self._server.should_exit = True
        self.join(_END_SECONDS)

    def run(self) -> None:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            try:
                runner.run(self._serve())
            except BaseException as failure:  # noqa: BLE001 - told to whoever waits for us
                self._failure = failure
            finally:
                self._ready.set()

    async def _serve(self) -> None:
        # Not at the top: a command that needs no server should not load one.
        from toolcrib.server.listening import listener
        from toolcrib.wiring import services

        async with services(self._settings, tools=self._tools) as opened:
            with socket.create_server(("127.0.0.1", 0), backlog=128) as listening:
                self._standing = await _standing(opened, self._whose, port=listening.getsockname()[1])
                self._server = listener(opened)
                self._ready.set()
                await self._server.serve(sockets=[listening])


async def _standing(services: "Services", whose: Whose, *, port: int) -> Standing:
    """The person and their directory, made known to the database if they are not yet."""
    from pwdlib.hashers.argon2 import Argon2Hasher

    from toolcrib.storage.accounts import Person

    login = await services.accounts.find_login(whose.email)
    if login is None:
        # Nobody knows this password: who can read the secrets needs none, and nobody else shall get in. Hashing it is
        # cheap, for there is nothing to guess: it is as long as a key, and at random.
        nobodys = Argon2Hasher(time_cost=1, memory_cost=8, parallelism=1).hash(token_urlsafe(48))
        # Another directory's first start may have been quicker.
        with suppress(Conflict):
            await services.accounts.create_user(email=whose.email, full_name=whose.full_name, password_hash=nobodys)
        login = await services.accounts.find_login(whose.email)
    assert login is not None
    person = Person(login.user_id)
    node, tree = services.settings.node, str(whose.tree)
    workspace = await services.workspaces.find_by_tree(person, tree=tree, node=node)
    if workspace is None:
        workspace = await services.workspaces.create(person, name=whose.name, node=node, tree=tree)
    return Standing(f"http://127.0.0.1:{port}", login.user_id, login.token_version, workspace.id)


def _loop_factory() -> "type[asyncio.AbstractEventLoop] | None":
    with suppress(ImportError):
        import uvloop

        return uvloop.Loop
    return None
