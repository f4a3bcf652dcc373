"""``toolcrib user``: who you are, and accounts for others on a server of yours."""

import asyncio
import json
import sys
from typing import Annotated

import typer

from toolcrib.cli.place import HERE, DirectoryOption, JsonOption, ServerOption, WorkspaceOption, open_place
from toolcrib.cli.showing import one_line
from toolcrib.domain.errors import BadArguments

app = typer.Typer(invoke_without_command=True)

_LEAST_CHARACTERS = 12


@app.callback()
def shown(
    context: typer.Context,
    as_json: JsonOption = False,
    directory: DirectoryOption = HERE,
    server: ServerOption = None,
    workspace: WorkspaceOption = None,
) -> None:
    """Show who you are here.

    Example: toolcrib user add grace@example.com
    """
    if context.invoked_subcommand is not None:
        return
    with open_place(directory, server=server, workspace=workspace) as place:
        me = place.client.me()
    typer.echo(me.model_dump_json() if as_json else f"{one_line(me.full_name or '', 100)} <{one_line(me.email, 200)}>")


@app.command()
def add(
    email: Annotated[str, typer.Argument(help="Their address.")],
    name: Annotated[str | None, typer.Option(help="Their name.")] = None,
) -> None:
    """Make an account in the database of TOOLCRIB_DATABASE_URL, for servers where registration is closed.

    The password is asked for, or read from a pipe.

    Example: toolcrib user add grace@example.com --name "Grace Hopper"
    """
    password = _password()
    made = asyncio.run(_add(email.strip().lower(), name, password))
    typer.echo(json.dumps({"id": made, "email": email.strip().lower()}))


def _password() -> str:
    if sys.stdin.isatty():
        password = str(typer.prompt("Password", hide_input=True, confirmation_prompt=True))
    else:
        password = sys.stdin.readline().rstrip("\n")
    if len(password) < _LEAST_CHARACTERS:
        raise BadArguments({"password": f"At least {_LEAST_CHARACTERS} characters are needed"})
    return password


async def _add(email: str, name: str | None, password: str) -> str:
    from pydantic import TypeAdapter, ValidationError

    from toolcrib.cli.configuration import load_settings
    from toolcrib.server.passwords import Passwords
    from toolcrib.server.shapes import Email
    from toolcrib.storage.accounts import Accounts
    from toolcrib.storage.database import Database

    try:
        TypeAdapter(Email).validate_python(email)
    except ValidationError:
        raise BadArguments({"email": f"{email!r} is no e-mail address"}) from None
    settings = load_settings()
    hashed = await Passwords().hash(password)
    async with Database.open(settings.database_url, settings.system_url, pool_size=2) as database:
        profile = await Accounts(database).create_user(email=email, full_name=name, password_hash=hashed)
    return str(profile.user_id)
