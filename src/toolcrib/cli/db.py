"""``toolcrib db``: the database's schema."""

from typing import Annotated

import typer

from toolcrib.domain.errors import Misconfigured
from toolcrib.storage import migrate

app = typer.Typer(help="Prepare and inspect the database.", no_args_is_help=True)

OwnerUrl = Annotated[
    str | None,
    typer.Option(
        "--owner-url",
        envvar="TOOLCRIB_OWNER_DATABASE_URL",
        help="The database as its owner, who may create roles and tables.",
        show_envvar=True,
    ),
]


@app.command()
def upgrade(
    owner_url: OwnerUrl = None,
    app_url: Annotated[
        str | None,
        typer.Option("--app-url", envvar="TOOLCRIB_DATABASE_URL", help="Its password is set on toolcrib_app."),
    ] = None,
    system_url: Annotated[
        str | None,
        typer.Option(
            "--system-url",
            envvar="TOOLCRIB_SYSTEM_DATABASE_URL",
            help="Its password is set on toolcrib_system.",
        ),
    ] = None,
) -> None:
    """Bring the database to this program's schema: tables, functions, policies and the two roles that serve.

    Example: toolcrib db upgrade --owner-url postgresql://postgres@localhost/toolcrib
    """
    if owner_url is None:
        raise Misconfigured("Say which database: --owner-url or TOOLCRIB_OWNER_DATABASE_URL.")
    before = migrate.current_revision(owner_url)
    revision = migrate.upgrade(owner_url, app_dsn=app_url, system_dsn=system_url or app_url)
    came_from = "an empty database" if before is None else f"revision {before}"
    typer.echo(f"The database is at revision {revision} (was {came_from}).")
    typer.echo(f"Serve with the role {migrate.APP_ROLE}.")
