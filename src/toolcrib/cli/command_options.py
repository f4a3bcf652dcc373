"""The options that select a directory, server or workspace, shared by all commands."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from toolcrib.core.errors import Misconfigured
from toolcrib.sdk import workspace_location
from toolcrib.sdk.workspace_location import WorkspaceLocation as WorkspaceLocation
from toolcrib.settings import Settings

DirectoryOption = Annotated[
    Path, typer.Option("--directory", "-C", help="The project directory.", show_default="this one")
]
ServerOption = Annotated[
    str | None, typer.Option("--server", envvar="TOOLCRIB_SERVER", help="Use this server instead of the directory.")
]
WorkspaceOption = Annotated[
    str | None, typer.Option("--workspace", envvar="TOOLCRIB_WORKSPACE", help="Workspace on the server: name or id.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
HERE = Path()


@contextmanager
def open_workspace(
    directory: Path = HERE, *, server: str | None = None, workspace: str | None = None
) -> Iterator[WorkspaceLocation]:
    """Opens the workspace of a directory, or one on ``server``. Reports slow steps to standard error."""
    with workspace_location.open_workspace_at(directory, server=server, workspace=workspace, notify=aside) as opened:
        yield opened


def aside(text: str) -> None:
    """Prints to standard error what is not part of the output."""
    typer.echo(text, err=True)


def load_settings() -> Settings:
    """Loads the settings from the environment. Raises Misconfigured with the names of missing or invalid variables."""
    try:
        return Settings()
    except ValidationError as error:
        wrong = [
            f"TOOLCRIB_{'_'.join(str(step) for step in detail['loc']).upper()}: "
            + ("not set" if detail["type"] == "missing" else detail["msg"])
            for detail in error.errors(include_url=False, include_input=False)
        ]
        raise Misconfigured("Settings are missing or invalid:\n  " + "\n  ".join(wrong)) from None
