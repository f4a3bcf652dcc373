"""``toolcrib user``: shows your account, and manages the accounts of your own server."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from toolcrib.cli.command_options import (
    HERE,
    DirectoryOption,
    JsonOption,
    ServerOption,
    WorkspaceOption,
    open_workspace,
)
from toolcrib.cli.terminal_text import one_line
from toolcrib.core.errors import BadArguments

if TYPE_CHECKING:
    from toolcrib.storage.database import Database

app = typer.Typer(invoke_without_command=True)

_MIN_PASSWORD_CHARACTERS = 12

T = TypeVar("T")

EmailArgument = Annotated[str, typer.Argument(help="Email address of the account.")]


@app.callback()
def shown(
    context: typer.Context,
    as_json: JsonOption = False,
    directory: DirectoryOption = HERE,
    server: ServerOption = None,
    workspace: WorkspaceOption = None,
) -> None:
    """Show your account. The subcommands manage accounts in the database at TOOLCRIB_DATABASE_URL.

    Example: toolcrib user create grace@example.com
    """
    if context.invoked_subcommand is not None:
        return
    with open_workspace(directory, server=server, workspace=workspace) as location:
        me = location.client.me()
    typer.echo(me.model_dump_json() if as_json else f"{one_line(me.full_name or '', 100)} <{one_line(me.email, 200)}>")


@app.command()
def create(
    email: EmailArgument,
    name: Annotated[str | None, typer.Option(help="Full name.")] = None,
) -> None:
    """Create an account. Prompts for the password, or reads it from a pipe.

    Example: toolcrib user create grace@example.com --name "Grace Hopper"
    """
    from pydantic import TypeAdapter, ValidationError

    from toolcrib.api.schema_base import Email
    from toolcrib.storage.users import UserStore

    try:
        address = TypeAdapter(Email).validate_python(email)
    except ValidationError:
        raise BadArguments({"email": f"{email!r} is not an email address"}) from None
    hashed = _password_hash()

    async def make(database: "Database") -> str:
        made = await UserStore(database).create_user(email=address, full_name=name, password_hash=hashed)
        return str(made.user_id)

    typer.echo(json.dumps({"id": _in_database(make), "email": address}))


@app.command("list")
def listed(as_json: JsonOption = False) -> None:
    """List all accounts.

    Example: toolcrib user list --json
    """
    from toolcrib.storage.user_admin import UserAdmin

    for one in _in_database(lambda database: UserAdmin(database).list()):
        if as_json:
            names = {"id": str(one.user_id), "email": one.email, "name": one.full_name}
            typer.echo(json.dumps(names | {"disabled": one.disabled_at is not None}))
            continue
        disabled = f"  disabled since {one.disabled_at:%Y-%m-%d}" if one.disabled_at else ""
        name = one_line(one.full_name or "", 100)
        typer.echo(f"{one.created_at:%Y-%m-%d}  {one_line(one.email, 200)}  {name}{disabled}")


@app.command()
def disable(email: EmailArgument) -> None:
    """Disable an account. Revokes its logins and API keys and closes its connections.

    Example: toolcrib user disable grace@example.com
    """
    from toolcrib.storage.user_admin import UserAdmin

    _in_database(lambda database: UserAdmin(database).disable(email.strip()))
    typer.echo(f"{one_line(email, 200)} is disabled. All logins and API keys are revoked.")


@app.command()
def enable(email: EmailArgument) -> None:
    """Enable a disabled account. Revoked logins and API keys stay revoked.

    Example: toolcrib user enable grace@example.com
    """
    from toolcrib.storage.user_admin import UserAdmin

    _in_database(lambda database: UserAdmin(database).enable(email.strip()))
    typer.echo(f"{one_line(email, 200)} is enabled.")


@app.command("set-password")
def set_password(email: EmailArgument) -> None:
    """Set a password. Prompts for it, or reads it from a pipe. Revokes logins and API keys.

    Example: toolcrib user set-password grace@example.com
    """
    from toolcrib.storage.user_admin import UserAdmin

    hashed = _password_hash()
    _in_database(lambda database: UserAdmin(database).set_password(email.strip(), hashed))
    typer.echo(f"{one_line(email, 200)} has a new password. All logins and API keys are revoked.")


def _password_hash() -> str:
    from toolcrib.api.passwords import Passwords

    if sys.stdin.isatty():
        password = str(typer.prompt("Password", hide_input=True, confirmation_prompt=True))
    else:
        password = sys.stdin.readline().rstrip("\n")
    if len(password) < _MIN_PASSWORD_CHARACTERS:
        raise BadArguments({"password": f"Use at least {_MIN_PASSWORD_CHARACTERS} characters"})
    return asyncio.run(Passwords().hash(password))


def _in_database(work: Callable[["Database"], Awaitable[T]]) -> T:
    from toolcrib.cli.command_options import load_settings
    from toolcrib.storage.database import Database

    async def run() -> T:
        settings = load_settings()
        async with Database.open(settings.database_url, settings.system_url, pool_size=2) as database:
            return await work(database)

    return asyncio.run(run())
