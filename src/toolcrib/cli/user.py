"""``toolcrib user``: shows your account, and manages the accounts of your own server."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from toolcrib.cli.command_options import JsonOption, WorkspaceLocation, aside, group_in_workspace, in_database
from toolcrib.cli.terminal_text import one_line, print_json
from toolcrib.core.errors import BadArguments

if TYPE_CHECKING:
    from toolcrib.storage.database import Database
    from toolcrib.storage.user_admin import Account, UserAdmin

app = typer.Typer(invoke_without_command=True)

_MIN_PASSWORD_CHARACTERS = 12

T = TypeVar("T")
EmailArgument = Annotated[str, typer.Argument(help="Email address of the account.")]


@app.callback()
@group_in_workspace
def shown(location: WorkspaceLocation, as_json: JsonOption = False) -> None:
    """Show your account. The subcommands manage accounts in the database at TOOLCRIB_DATABASE_URL.

    Example: toolcrib user create grace@example.com
    """
    me = location.client.me()
    typer.echo(me.model_dump_json() if as_json else f"{one_line(me.full_name or '', 100)} <{one_line(me.email, 200)}>")


@app.command()
def create(
    email: EmailArgument,
    name: Annotated[str | None, typer.Option(help="Full name.")] = None,
    administrator: Annotated[
        bool, typer.Option("--administrator", help="May manage accounts. The first account always may.")
    ] = False,
) -> None:
    """Create an account. Prompts for the password, or reads it from a pipe.

    Example: toolcrib user create grace@example.com --name "Grace Hopper"
    """
    from pydantic import TypeAdapter, ValidationError

    from toolcrib.schemas.schema_base import Email
    from toolcrib.storage.user_admin import UserAdmin
    from toolcrib.storage.users import UserStore

    try:
        address = TypeAdapter(Email).validate_python(email)
    except ValidationError:
        raise BadArguments({"email": f"{email!r} is not an email address"}) from None
    hashed = _password_hash()

    async def make(database: "Database") -> str:
        users = UserStore(database)
        is_first = not await users.anyone()
        made = await users.create_user(email=address, full_name=name, password_hash=hashed)
        if administrator or is_first:
            await UserAdmin(database).change(made.user_id, administrator=True)
        return str(made.user_id)

    print_json({"id": in_database(make), "email": address})


@app.command("list")
def listed(as_json: JsonOption = False) -> None:
    """List all accounts.

    Example: toolcrib user list --json
    """
    for one in _as_admin(lambda users: users.list()):
        if as_json:
            names = {"id": str(one.user_id), "email": one.email, "name": one.full_name}
            print_json(names | {"disabled": one.is_disabled, "administrator": one.is_administrator})
            continue
        administrator = "  administrator" if one.is_administrator else ""
        disabled = f"  disabled since {one.disabled_at:%Y-%m-%d}" if one.disabled_at else ""
        name = one_line(one.full_name or "", 100)
        typer.echo(f"{one.created_at:%Y-%m-%d}  {one_line(one.email, 200)}  {name}{administrator}{disabled}")


@app.command()
def disable(email: EmailArgument) -> None:
    """Disable an account. Revokes its logins and API keys, closes its connections and ends its runs.

    Example: toolcrib user disable grace@example.com
    """
    _with_account(email, lambda users, account: users.change(account.user_id, disabled=True))
    typer.echo(f"{one_line(email, 200)} is disabled. All logins and API keys are revoked.")


@app.command()
def enable(email: EmailArgument) -> None:
    """Enable a disabled account. Revoked logins and API keys stay revoked.

    Example: toolcrib user enable grace@example.com
    """
    _with_account(email, lambda users, account: users.change(account.user_id, disabled=False))
    typer.echo(f"{one_line(email, 200)} is enabled.")


@app.command("set-password")
def set_password(email: EmailArgument) -> None:
    """Set a password. Prompts for it, or reads it from a pipe. Revokes logins and API keys.

    Example: toolcrib user set-password grace@example.com
    """
    hashed = _password_hash()
    _with_account(email, lambda users, account: users.set_password(account.user_id, hashed))
    typer.echo(f"{one_line(email, 200)} has a new password. All logins and API keys are revoked.")


@app.command("reset-password")
def reset_password(
    email: EmailArgument,
    origin: Annotated[
        str | None, typer.Option(help="Address of the server for its users; by default this machine's.")
    ] = None,
) -> None:
    """Print a link with which a person sets a new password. It works once, within a day.

    The old password works until the link is used. Then all logins and API keys are revoked.

    Example: toolcrib user reset-password grace@example.com --origin https://toolcrib.example.com
    """
    from toolcrib.settings import load_settings

    made = _with_account(email, lambda users, account: users.start_password_reset(account.user_id))
    typer.echo(f"{(origin or load_settings().origin).rstrip('/')}/#reset={made.secret}")
    aside(f"It works once, until {made.expires_at:%Y-%m-%d %H:%M} UTC. It is not shown again.")


@app.command()
def administrator(
    email: EmailArgument,
    revoke: Annotated[bool, typer.Option("--revoke", help="End it.")] = False,
) -> None:
    """Allow a user to manage the accounts of this server. Gives no access to workspaces.

    Example: toolcrib user administrator grace@example.com
    """
    _with_account(email, lambda users, account: users.change(account.user_id, administrator=not revoke))
    typer.echo(f"{one_line(email, 200)} is {'no longer ' if revoke else ''}an administrator.")


def _with_account(email: str, work: Callable[["UserAdmin", "Account"], Awaitable[T]]) -> T:
    async def find(users: "UserAdmin") -> T:
        return await work(users, await users.find(email.strip()))

    return _as_admin(find)


def _as_admin(work: Callable[["UserAdmin"], Awaitable[T]]) -> T:
    from toolcrib.storage.user_admin import UserAdmin

    return in_database(lambda database: work(UserAdmin(database)))


def _password_hash() -> str:
    from toolcrib.api.passwords import Passwords

    if sys.stdin.isatty():
        password = str(typer.prompt("Password", hide_input=True, confirmation_prompt=True))
    else:
        password = sys.stdin.readline().rstrip("\n")
    if len(password) < _MIN_PASSWORD_CHARACTERS:
        raise BadArguments({"password": f"Use at least {_MIN_PASSWORD_CHARACTERS} characters"})
    return asyncio.run(Passwords().hash(password))
