"""The ``toolcrib`` command: assembles the commands and prints errors."""

import gc
import os
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

import toolcrib
from toolcrib.core.errors import Misconfigured, ToolcribError

# In the order of the help. The module of that name has the function or an `app` with subcommands.
COMMANDS = (
    *(
        "chat",
        "run",
        "web",
        "tool",
        "undo",
        "redo",
        "review",
        "log",
        "sessions",
        "runs",
        "agents",
        "schedules",
        "models",
        "workspace",
        "key",
    ),
    *("user", "serve", "approve", "answer", "doctor", "mcp", "package", "db", "nodes", "backup", "restore", "audit"),
)
_ELSEWHERE = {"redo": "undo"}
# The help of `db` names them; the help of all commands fits one screen.
_HIDDEN = frozenset({"nodes", "backup", "restore"})
_OWN_OPTIONS = frozenset({"--version", "--help", "--install-completion", "--show-completion"})
_COLLECT_AFTER = 200_000
_VERSION = f"toolcrib {toolcrib.__version__}"


def main() -> None:
    """Entry point of the console script."""
    if sys.argv[1:] == ["--version"]:
        # Without the app, which loads every command to find this option.
        print(_VERSION)
        return
    # Loading creates many long-lived objects. At Python's default threshold, the collector takes a fifth of the start.
    gc.set_threshold(_COLLECT_AFTER)
    words = _completed(sys.argv[1:])
    try:
        if named := os.environ.get("TOOLCRIB_ENV_FILE"):
            _export_env_file(Path(named))
        command_line(*_wanted(words))(words)
    except ToolcribError as error:
        # Imported here: without an error, some commands do not need it.
        from toolcrib.cli.terminal_text import error_text

        typer.secho(f"toolcrib: {error_text(error)}", fg=typer.colors.RED, err=True)
        sys.exit(2)
    except ModuleNotFoundError as error:
        if not _is_of_the_server(error):
            raise
        typer.secho(f"toolcrib: {_only_a_client(error)}", fg=typer.colors.RED, err=True)
        sys.exit(2)


def _export_env_file(path: Path) -> None:
    """Set the variables of this file that are not set: commands look for them before they load the settings."""
    # Imported here: most commands have no such file.
    from pydantic_settings import DotEnvSettingsSource

    from toolcrib.settings import Settings

    try:
        path.open().close()
    except OSError as error:
        raise Misconfigured(f"TOOLCRIB_ENV_FILE is {str(path)!r}, which cannot be read: {error.strerror}.") from None
    for name, value in DotEnvSettingsSource(Settings, env_file=path, case_sensitive=True).env_vars.items():
        if name.startswith("TOOLCRIB_") and value and not os.environ.get(name):
            os.environ[name] = value


def command_line(*names: str) -> typer.Typer:
    """Builds the app with these commands, or with all. Loading all takes longer than most commands run."""
    app = typer.Typer(
        name="toolcrib",
        help="AI agents for your directory, with undo. Example of a chat: `toolcrib`",
        pretty_exceptions_enable=False,
        # Plain help is half as long as help in boxes, and suits screen readers.
        rich_markup_mode=None,
    )
    app.callback(invoke_without_command=True)(_options)
    for name in names or COMMANDS:
        try:
            module = import_module(f"toolcrib.cli.{_ELSEWHERE.get(name, name)}")
        except ModuleNotFoundError as error:
            if len(names) == 1 or not _is_of_the_server(error):
                raise
            # Help and completion of a client show what it can do.
            continue
        if hasattr(module, "app"):
            app.add_typer(module.app, name=name, hidden=name in _HIDDEN)
        else:
            settings = getattr(module, "TAKES_ANYTHING", None)
            app.command(name, context_settings=settings, hidden=name in _HIDDEN)(getattr(module, name))
    return app


def _completed(words: list[str]) -> list[str]:
    """Returns the arguments with the command that is meant without one: `toolcrib --continue` is a chat."""
    is_chat = words[:1] and words[0].startswith("-") and words[0] not in _OWN_OPTIONS
    return ["chat", *words] if is_chat else words


def _is_of_the_server(error: ModuleNotFoundError) -> bool:
    """Whether an installation lacks this module because it is only a client: no server runs without the driver."""
    return not (error.name or "toolcrib").startswith("toolcrib") and find_spec("psycopg") is None


def _only_a_client(error: ModuleNotFoundError) -> str:
    where = "" if sys.platform == "linux" else f" They run on Linux, and this is {sys.platform}."
    return (
        f"This installation is a client: it lacks what local mode and servers need, such as {error.name}.{where} "
        "Use a server with --server, or install them on Linux: pip install toolcrib."
    )


def _wanted(words: list[str]) -> tuple[str, ...]:
    """Returns the command that the arguments name; all commands if they name none, or for shell completion."""
    if "_TOOLCRIB_COMPLETE" in os.environ:
        return COMMANDS
    first = words[0] if words else "chat"
    return (first,) if first in COMMANDS else COMMANDS


def _options(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version.", is_eager=True)] = False,
) -> None:
    if version:
        typer.echo(_VERSION)
        raise typer.Exit
    if context.invoked_subcommand is None:
        from toolcrib.cli import chat

        context.invoke(chat.chat)
