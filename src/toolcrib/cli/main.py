"""The ``toolcrib`` command: puts the commands together and tells errors as a person wants to hear them."""

import sys
from collections.abc import Mapping
from typing import Annotated

import typer

import toolcrib
from toolcrib.cli import (
    agents,
    answer,
    approve,
    audit,
    chat,
    db,
    doctor,
    key,
    log,
    mcp,
    models,
    run,
    serve,
    sessions,
    tool,
    undo,
    user,
    workspace,
)
from toolcrib.cli.showing import one_line
from toolcrib.domain.errors import ToolcribError

app = typer.Typer(
    name="toolcrib",
    help=(
        "Agents with tools in your project directory: you are asked, it is written down, and you can undo it.\n\n"
        "Without a command: a chat in this directory.\n\n"
        "Example: cd my-project && toolcrib"
    ),
    pretty_exceptions_enable=False,
    # Plain help: half as long as in boxes, and it reads well aloud.
    rich_markup_mode=None,
)
app.command("chat")(chat.chat)
app.command("run")(run.run)
app.command("tool", context_settings=tool.TAKES_ANYTHING)(tool.tool)
app.command("undo")(undo.undo)
app.command("redo")(undo.redo)
app.command("log")(log.log)
app.command("sessions")(sessions.sessions)
app.add_typer(agents.app, name="agents")
app.add_typer(models.app, name="models")
app.add_typer(workspace.app, name="workspace")
app.add_typer(key.app, name="key")
app.add_typer(user.app, name="user")
app.command("serve")(serve.serve)
app.command("approve")(approve.approve)
app.command("answer")(answer.answer)
app.command("doctor")(doctor.doctor)
app.command("mcp")(mcp.mcp)
app.add_typer(db.app, name="db")
app.add_typer(audit.app, name="audit")


@app.callback(invoke_without_command=True)
def options(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version and end.", is_eager=True)] = False,
) -> None:
    if version:
        typer.echo(f"toolcrib {toolcrib.__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        context.invoke(chat.chat)


def main() -> None:
    """Entry point of the console script."""
    try:
        app()
    except ToolcribError as error:
        flaws = "" if any(flaw in error.message for flaw in error.fields.values()) else _listed(error.fields)
        typer.secho(f"toolcrib: {error.message}{flaws}", fg=typer.colors.RED, err=True)
        sys.exit(2)


def _listed(fields: Mapping[str, str]) -> str:
    return "".join(f"\n  {one_line(field, 60)}: {one_line(flaw)}" for field, flaw in fields.items())
