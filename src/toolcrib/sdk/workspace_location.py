"""Where a workspace is: a directory that this process serves, or a workspace of another server."""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

from toolcrib.core.errors import Misconfigured, NotFound

if TYPE_CHECKING:
    from toolcrib.client import Client, WorkspaceOut
    from toolcrib.local.stored_history import StoredHistory
    from toolcrib.tools.tool import Tool


@dataclass(frozen=True, slots=True)
class WorkspaceLocation:
    """A workspace, and a client for the server that has it."""

    client: "Client"
    workspace: "WorkspaceOut"
    # The folder for this directory's state on this machine; None for a server's workspace.
    notes: Path | None
    # The project's directory on this machine; None for a server's workspace.
    tree: Path | None = None
    # Where the person is in the project, relative to it; empty for its root.
    directory: str = ""
    # Whether another process of this user serves the directory; it may end.
    served_elsewhere: bool = False
    # Creates a URL that logs a browser in once; for a directory on this machine.
    login_link: Callable[[], str] | None = None

    @property
    def id(self) -> UUID:
        """The id of the workspace."""
        return self.workspace.id


@dataclass(frozen=True, slots=True)
class HistoryLocation:
    """A workspace of which only the history is read, and what reads it."""

    client: "Client | StoredHistory"
    id: UUID


@contextmanager
def open_workspace_at(
    directory: Path,
    *,
    server: str | None = None,
    workspace: str | None = None,
    finds_project: bool = False,
    tools: Iterable["Tool"] = (),
    notify: Callable[[str], None] = lambda _: None,
    resumes: bool = True,
) -> Iterator[WorkspaceLocation]:
    """Open the workspace of a directory, with additional ``tools``, or a workspace of ``server``.

    With ``finds_project``, a directory in a project is that project. With ``resumes``, a server that it starts goes on
    with the runs that an earlier one left.

    Raises:
        Misconfigured: ``tools`` were given for a server, or no token or workspace is configured for it.
        NotFound: The server has no such workspace.
    """
    # Imported here: a command that only reads a directory's history needs no client.
    from toolcrib.client import Client

    added = tuple(tools)
    if server is not None:
        if added:
            raise Misconfigured("Custom tools are not available with a remote server. Leave out `tools`.")
        with Client(server, _token()) as client:
            yield WorkspaceLocation(client, _chosen(client, workspace), None)
        return
    # Imported here: it loads the whole program, which a remote server does not need.
    from toolcrib.local import open_local

    with (
        open_local(directory, finds_project=finds_project, tools=added, notify=notify, resumes=resumes) as local,
        Client(local.address, local.token, seconds=120) as client,
    ):
        found = next(one for one in client.workspaces() if one.id == local.workspace_id)
        yield WorkspaceLocation(
            client,
            found,
            local.log.parent,
            tree=local.tree,
            directory=_below(local.tree, directory),
            served_elsewhere=not local.serves,
            login_link=local.login_link,
        )


@contextmanager
def open_history_at(
    directory: Path,
    *,
    server: str | None = None,
    workspace: str | None = None,
    finds_project: bool = False,
    notify: Callable[[str], None] = lambda _: None,
) -> Iterator[HistoryLocation]:
    """Open the history of a directory, or of a workspace of ``server``. Starts a server only if it must.

    Raises what ``open_workspace_at`` raises.
    """
    with ExitStack() as opened:
        if server is None:
            from toolcrib.local import open_history

            stored = opened.enter_context(open_history(directory, finds_project=finds_project))
            if stored is not None:
                yield HistoryLocation(stored, stored.workspace_id)
                return
            opened.close()
        location = opened.enter_context(
            open_workspace_at(directory, server=server, workspace=workspace, finds_project=finds_project, notify=notify)
        )
        yield HistoryLocation(location.client, location.id)


def _below(tree: Path, directory: Path) -> str:
    """Return a directory relative to the project that it is in; empty for its root."""
    inside = directory.resolve().relative_to(tree)
    return "" if inside == Path() else inside.as_posix()


def _token() -> str:
    token = os.environ.get("TOOLCRIB_TOKEN")
    if not token:
        raise Misconfigured("TOOLCRIB_TOKEN is not set. Set it to your API key or access token.")
    return token


def _chosen(client: "Client", name: str | None) -> "WorkspaceOut":
    own = client.workspaces()
    fitting = [one for one in own if name in (None, one.name, str(one.id))]
    if len(fitting) == 1:
        return fitting[0]
    names = ", ".join(sorted(one.name for one in own)[:20]) or "none"
    if not fitting:
        raise NotFound(f"You are not a member of a workspace {name!r}. Your workspaces: {names}.")
    raise Misconfigured(f"Choose a workspace with --workspace NAME. Your workspaces: {names}.")
