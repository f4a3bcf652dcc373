"""Where a command works: the options that say it, the same for every command."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from toolcrib.library import place
from toolcrib.library.place import Place as Place

DirectoryOption = Annotated[
    Path, typer.Option("--directory", "-C", help="The project directory.", show_default="this one")
]
ServerOption = Annotated[
    str | None, typer.Option("--server", envvar="TOOLCRIB_SERVER", help="A server elsewhere, instead of the directory.")
]
WorkspaceOption = Annotated[
    str | None, typer.Option("--workspace", envvar="TOOLCRIB_WORKSPACE", help="With a server: its name or id.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Answer as JSON.")]
HERE = Path()


@contextmanager
def open_place(directory: Path = HERE, *, server: str | None = None, workspace: str | None = None) -> Iterator[Place]:
    """The workspace of a directory, or one of a server if that is named; what takes a while is told aside."""
    with place.open_place(directory, server=server, workspace=workspace, tell=aside) as opened:
        yield opened


def aside(text: str) -> None:
    """Tells a person what is no part of the answer."""
    typer.echo(text, err=True)
