"""The ``toolcrib`` command: puts the commands together and tells errors as a person wants to hear them."""

import sys
from typing import Annotated

import typer

import toolcrib
from toolcrib.cli import answer, approve, audit, db, doctor, serve
from toolcrib.domain.errors import ToolcribError

app = typer.Typer(
    name="toolcrib",
    help="The tool layer for language models: a versioned workspace behind one gate.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command("serve")(serve.serve)
app.command("approve")(approve.approve)
app.command("answer")(answer.answer)
app.command("doctor")(doctor.doctor)
app.add_typer(db.app, name="db")
app.add_typer(audit.app, name="audit")


@app.callback(invoke_without_command=True)
def options(
    version: Annotated[bool, typer.Option("--version", help="Show the version and end.", is_eager=True)] = False,
) -> None:
    if version:
        typer.echo(f"toolcrib {toolcrib.__version__}")
        raise typer.Exit


def main() -> None:
    """Entry point of the console script."""
    try:
        app()
    except ToolcribError as error:
        typer.secho(f"toolcrib: {error.message}", fg=typer.colors.RED, err=True)
        sys.exit(2)
