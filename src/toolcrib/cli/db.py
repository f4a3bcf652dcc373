"""``toolcrib db``: migrates the database, shows its disk usage, collects garbage and restores files from it."""

from dataclasses import asdict
from datetime import timedelta
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from toolcrib.cli.command_options import JsonOption, in_database
from toolcrib.cli.restore import restore
from toolcrib.cli.terminal_text import print_json
from toolcrib.core.errors import Misconfigured
from toolcrib.runs import durable
from toolcrib.settings import load_settings
from toolcrib.storage import migrate
from toolcrib.storage.blobs import CollectedGarbage, RetentionStore
from toolcrib.storage.database import Database
from toolcrib.storage.trash import TrashStore
from toolcrib.workspace.fs.mounts import MountTable
from toolcrib.workspace.retention_worker import RetentionWorker, TrashCollector

app = typer.Typer(help="Prepare and inspect the database (see also: nodes, backup, restore).", no_args_is_help=True)

OwnerUrl = Annotated[
    str | None,
    typer.Option(
        envvar="TOOLCRIB_OWNER_DATABASE_URL",
        help="Connection URL of the database owner, who can create roles and tables.",
    ),
]


@app.command()
def upgrade(
    owner_url: OwnerUrl = None,
    app_url: Annotated[
        str | None,
        typer.Option(
            envvar="TOOLCRIB_DATABASE_URL",
            help="URL of the server. Its role, by default toolcrib_app, gets its password.",
        ),
    ] = None,
    system_url: Annotated[
        str | None,
        typer.Option(envvar="TOOLCRIB_SYSTEM_DATABASE_URL", help="The same for the role toolcrib_system."),
    ] = None,
) -> None:
    """Migrate the database: tables, functions, policies and the two server roles.

    Another installation in the same PostgreSQL cluster needs roles of its own: give it a URL with another role whose
    name ends with _app, such as postgresql://crib2_app:…@localhost/crib2.

    Example: toolcrib db upgrade --owner-url postgresql://postgres@localhost/toolcrib
    """

    if owner_url is None:
        raise Misconfigured("No database given. Use --owner-url or TOOLCRIB_OWNER_DATABASE_URL.")
    before = migrate.current_revision(owner_url)
    revision = durable.upgrade(owner_url, app_dsn=app_url, system_dsn=system_url or app_url)
    came_from = "an empty database" if before is None else f"revision {before}"
    typer.echo(f"The database is at revision {revision} (was {came_from}).")
    typer.echo(f"Run the server with the role {migrate.installed_roles(owner_url).app}.")


@app.command()
def stats(as_json: JsonOption = False) -> None:
    """Show the disk usage of each workspace, largest first.

    Example: toolcrib db stats --json
    """
    sizes = in_database(lambda database: RetentionStore(database).sizes())
    if as_json:
        print_json([asdict(size) for size in sizes])
        return
    table = Table("workspace", "files", "deleted", "versions", "blobs", "stored", "calls", "pending")
    for size in sizes:
        figures = (size.files, size.deleted_files, size.versions, size.blobs)
        stored = f"{size.stored_bytes / 1e6:,.1f} MB"
        table.add_row(size.name, *(f"{n:,}" for n in figures), stored, f"{size.calls:,}", f"{size.pending:,}")
    Console().print(table)


@app.command()
def gc(
    keep_days: Annotated[
        float | None, typer.Option(help="Delete versions older than this, except current ones; by default none.")
    ] = None,
) -> None:
    """Delete unreferenced blobs, expired trash and, with --keep-days, old versions.

    Safe while a server runs. Trash is stored per node: run it on each node.

    Example: toolcrib db gc --keep-days 90
    """

    keep = None if keep_days is None else timedelta(days=keep_days)
    settings = load_settings()

    async def collected(database: Database) -> CollectedGarbage:
        bin_ = TrashCollector(TrashStore(database), MountTable(settings.data_dir), node=settings.node_name)
        return await RetentionWorker(RetentionStore(database), keep=keep, bin=bin_).collect()

    found = in_database(collected, settings)
    typer.echo(
        f"Deleted {found.versions:,} versions, {found.blobs:,} blobs ({found.bytes / 1e6:,.1f} MB) "
        f"and {found.trashed:,} expired trash entries."
    )


app.command()(restore)
