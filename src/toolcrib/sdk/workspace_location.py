"""Where work is done: a directory, served by this very process, or a workspace of a server elsewhere."""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

from toolcrib.client import Client, WorkspaceData
from toolcrib.core.errors import Misconfigured, NotFound

if TYPE_CHECKING:
    from toolcrib.tools.tool import Tool


@dataclass(frozen=True, slots=True)
class WorkspaceLocation:
    """A workspace, and a client that speaks to whoever serves it."""

    client: Client
    workspace: WorkspaceData
    # What is remembered of a directory on this machine; nowhere for a server's workspace.
    notes: Path | None
    # Another process of this user serves the directory, and may end.
    served_elsewhere: bool = False
    # Makes an address at which a browser is logged in, once; for a directory on this machine.
    login_link: Callable[[], str] | None = None

    @property
    def id(self) -> UUID:
        return self.workspace.id


@contextmanager
def open_workspace_at(
    directory: Path,
    *,
    server: str | None = None,
    workspace: str | None = None,
    tools: Iterable["Tool"] = (),
    tell: Callable[[str], None] = lambda _: None,
) -> Iterator[WorkspaceLocation]:
    """The workspace of a directory, with ``tools`` besides ours, or one of a server if that is named."""
    added = tuple(tools)
    if server is not None:
        if added:
            raise Misconfigured("Tools are added where the server runs, and that is elsewhere. Leave out `tools`.")
        with Client(server, _token()) as client:
            yield WorkspaceLocation(client, _chosen(client, workspace), None)
        return
    # Only here: it loads the whole program, which work on a server elsewhere does not need.
    from toolcrib.local import open_local

    with (
        open_local(directory, tools=added, tell=tell) as local,
        Client(local.address, local.token, seconds=120) as client,
    ):
        found = next(one for one in client.workspaces() if one.id == local.workspace_id)
        yield WorkspaceLocation(
            client, found, local.log.parent, served_elsewhere=not local.serves, login_link=local.login_link
        )


def _token() -> str:
    token = os.environ.get("TOOLCRIB_TOKEN")
    if not token:
        raise Misconfigured("Say who you are to the server: set TOOLCRIB_TOKEN to an API key or access token of yours.")
    return token


def _chosen(client: Client, said: str | None) -> WorkspaceData:
    own = client.workspaces()
    fitting = [one for one in own if said in (None, one.name, str(one.id))]
    if len(fitting) == 1:
        return fitting[0]
    names = ", ".join(sorted(one.name for one in own)[:20]) or "none"
    if not fitting:
        raise NotFound(f"You belong to no workspace called {said!r} there. Yours: {names}.")
    raise Misconfigured(f"Say which workspace: --workspace NAME. Yours: {names}.")
