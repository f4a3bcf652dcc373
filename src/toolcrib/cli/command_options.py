"""What several commands share: the options that select a workspace, the JSON option, and the settings' database."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import update_wrapper
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from toolcrib.sdk import workspace_location
from toolcrib.sdk.workspace_location import HistoryLocation as HistoryLocation
from toolcrib.sdk.workspace_location import WorkspaceLocation as WorkspaceLocation

if TYPE_CHECKING:
    from toolcrib.settings import Settings
    from toolcrib.storage.database import Database

T = TypeVar("T")
Command = Callable[..., None]

DirectoryOption = Annotated[
    Path, typer.Option("--directory", "-C", help="The project directory.", show_default="the project of this one")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
AgentOption = Annotated[str | None, typer.Option("--agent", "-a", help="The agent; by default the default agent.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation.")]
HERE = Path()


@dataclass(frozen=True, slots=True)
class WorkspaceSelection:
    """The workspace of a directory, or one on a server. The fields are the options that select it."""

    directory: DirectoryOption = HERE
    server: Annotated[
        str | None, typer.Option("--server", envvar="TOOLCRIB_SERVER", help="Use this server instead of the directory.")
    ] = None
    workspace: Annotated[
        str | None,
        typer.Option("--workspace", envvar="TOOLCRIB_WORKSPACE", help="Workspace on the server: name or id."),
    ] = None

    def open(self, *, resumes: bool = True) -> AbstractContextManager[WorkspaceLocation]:
        """Opens the workspace. Reports slow steps to standard error.

        Args:
            resumes: Go on with the runs of a closed chat. Not for commands that only look or change something: a run
                that they wake sends a paid request, and stops with the command.
        """
        return workspace_location.open_workspace_at(
            self.directory,
            server=self.server,
            workspace=self.workspace,
            # A directory that is named is meant as it is.
            finds_project=self.directory == HERE,
            notify=aside,
            resumes=resumes,
        )

    def open_history(self) -> AbstractContextManager[HistoryLocation]:
        """Opens the history of the workspace. Starts a server only if it must."""
        return workspace_location.open_history_at(
            self.directory,
            server=self.server,
            workspace=self.workspace,
            finds_project=self.directory == HERE,
            notify=aside,
        )


def with_options(selection: Callable[..., Any]) -> Callable[[Command], Command]:
    """Adds the fields of ``selection`` to a command, as options. It is the first argument of the command."""
    options = inspect.signature(selection, eval_str=True).parameters

    def decorate(command: Command) -> Command:
        def run(**given: Any) -> None:
            selected = selection(**{name: given.pop(name) for name in options if name in given})
            command(selected, **given)

        return _declared(run, command, after=options.values())

    return decorate


def in_workspace(command: Command) -> Command:
    """Adds the options that select a workspace, and opens it: it is the first argument of the command."""

    def run(selection: WorkspaceSelection, **given: Any) -> None:
        with selection.open(resumes=False) as location:
            command(location, **given)

    return with_options(WorkspaceSelection)(update_wrapper(run, command))


_CONTEXT = Parameter("context", Parameter.KEYWORD_ONLY, annotation=typer.Context)


def group_in_workspace(command: Command) -> Command:
    """Like ``in_workspace``, for a group: runs without a subcommand. Subcommands are ``in_workspace_of_group``."""
    options = inspect.signature(WorkspaceSelection, eval_str=True).parameters

    def run(context: typer.Context, **given: Any) -> None:
        context.obj = WorkspaceSelection(**{name: given.pop(name) for name in options})
        if context.invoked_subcommand is None:
            with context.obj.open(resumes=False) as location:
                command(location, **given)

    return _declared(run, command, before=[_CONTEXT], after=options.values())


def in_workspace_of_group(command: Command) -> Command:
    """Opens the workspace that the options of the group select: it is the first argument of the command."""

    def run(context: typer.Context, **given: Any) -> None:
        with context.obj.open(resumes=False) as location:
            command(location, **given)

    return _declared(run, command, before=[_CONTEXT])


def _declared(
    run: Command, command: Command, *, before: Iterable[Parameter] = (), after: Iterable[Parameter] = ()
) -> Command:
    """Gives ``run`` the name, help and options of a command, without its first argument and with more options."""
    _, *own = inspect.signature(command, eval_str=True).parameters.values()
    parameters = [one.replace(kind=Parameter.KEYWORD_ONLY) for one in (*before, *own, *after)]
    made: Any = update_wrapper(run, command)
    made.__signature__ = inspect.Signature(parameters)
    made.__annotations__ = {one.name: one.annotation for one in parameters}
    return run


def aside(text: str) -> None:
    """Prints to standard error what is not part of the output."""
    typer.echo(text, err=True)


def in_database(work: Callable[["Database"], Awaitable[T]], settings: "Settings | None" = None) -> T:
    """Runs ``work`` with the database of the settings, by default those of the environment. Needs no server."""
    # Imported here: most commands use a server, and need no database driver.
    from toolcrib.settings import load_settings
    from toolcrib.storage.database import Database

    settings = settings or load_settings()

    async def run() -> T:
        async with Database.open(settings.database_url, settings.system_url, pool_size=2) as database:
            return await work(database)

    return asyncio.run(run())
