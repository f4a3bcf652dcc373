"""``toolcrib restore``: writes the files of workspaces back to a disk that lost them."""

import asyncio
import logging
import os
import sys
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import structlog
import typer

from toolcrib.cli.backup import OwnerUrl
from toolcrib.cli.command_options import HERE, DirectoryOption, JsonOption, aside
from toolcrib.cli.terminal_text import one_line, print_json
from toolcrib.core.errors import Misconfigured, NotFound, ToolcribError

if TYPE_CHECKING:
    from toolcrib.settings import Settings
    from toolcrib.storage.workspaces import HomedWorkspace
    from toolcrib.wiring.tool_runtime import ToolRuntime
    from toolcrib.workspace.sync.tree_marker import TreeMarker


def restore(
    workspace: Annotated[
        str | None, typer.Argument(help="Name or id of one workspace; by default all of this node.")
    ] = None,
    adopt: Annotated[
        bool, typer.Option("--adopt", help="An empty project directory of yours is right as it is.")
    ] = False,
    backup: Annotated[
        Path | None, typer.Option("--from", help="First load this backup into a new, empty database.")
    ] = None,
    owner_url: OwnerUrl = None,
    directory: DirectoryOption = HERE,
    as_json: JsonOption = False,
) -> None:
    """Restore a server from a backup, or write files back from the history after a disk was lost.

    Restores all workspaces of the node whose server has these settings (TOOLCRIB_DATABASE_URL), or else this directory.
    Lists what the history did not have. Overwrites nothing: a tree with anything in it stays as it is. Safe while the
    server runs. With --from, it verifies the backup and loads it first, and says which keys are missing.

    Exits with 1 if a workspace could not be restored.

    Example: toolcrib restore --from /backups/monday
    """
    # Imported here, as in the other commands.
    from toolcrib.local.local_mode import open_settings
    from toolcrib.settings import load_settings

    # The summary below says what the rest of the log would.
    quiet = structlog.make_filtering_bound_logger(logging.ERROR)
    structlog.configure(wrapper_class=quiet, logger_factory=structlog.PrintLoggerFactory(file=sys.stderr))
    is_server = "TOOLCRIB_DATABASE_URL" in os.environ
    if backup is not None:
        if not is_server or owner_url is None:
            raise Misconfigured(
                "Set TOOLCRIB_DATABASE_URL and TOOLCRIB_OWNER_DATABASE_URL (or --owner-url) to a new, empty database."
            )
        _load_backup(load_settings(), backup, owner_url)
    with (
        nullcontext(load_settings())
        if is_server
        else open_settings(Path(directory), finds_project=directory == HERE) as settings
    ):
        restored = asyncio.run(_restore_all(settings, workspace, adopt=adopt))
    if as_json:
        print_json([one.as_json() for one in restored])
    else:
        _print(restored, node=settings.node_name)
    raise typer.Exit(1 if any(one.error for one in restored) else 0)


def _load_backup(settings: "Settings", backup: Path, owner_url: str) -> None:
    """Load a backup into the database, and say what it does not bring back."""
    from toolcrib.cli.backup import missing_keys
    from toolcrib.local import postgres_binaries
    from toolcrib.runs import durable
    from toolcrib.storage import backup as backups

    manifest = backups.BackupManifest.load(backup)
    manifest.verify(backup)
    aside(f"The backup of {manifest.created_at:%Y-%m-%d %H:%M} UTC (Toolcrib {manifest.toolcrib}) is complete.")
    if manifest.node not in (None, settings.node_name):
        aside(
            f"It is of node {manifest.node}, and this one is {settings.node_name}: set TOOLCRIB_NODE_NAME to serve its "
            "files."
        )
    for key in missing_keys(settings, manifest.keys):
        typer.secho(f"Missing key: {key}", fg=typer.colors.YELLOW, err=True)
    for name in manifest.not_included:
        aside(f"Not in the backup: {name}.")
    pg_restore = postgres_binaries.find_client("pg_restore", major=manifest.postgres)
    backups.load_dump(owner_url, backup / backups.DUMP, pg_restore=pg_restore)
    backups.verify_rows(owner_url, manifest)
    revision = durable.upgrade(owner_url, app_dsn=settings.database_url, system_dsn=settings.system_url)
    if backups.DISK in manifest.files:
        backups.unpack_disk(backup, settings.data_dir)
    aside(f"The database is restored, at revision {revision}.")
    if settings.audit_anchor.exists():
        aside(
            "This node has sealed the audit log before, perhaps further than the backup. Then it seals nothing until "
            "you run `toolcrib audit accept-restore`."
        )


@dataclass(frozen=True, slots=True)
class RestoredWorkspace:
    """What became of one workspace."""

    workspace: "HomedWorkspace"
    marker: "TreeMarker | None" = None
    error: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return what ``--json`` prints of it."""
        return {
            "workspace_id": self.workspace.id,
            "name": self.workspace.name,
            "files": self.marker.files if self.marker else 0,
            "lost": [asdict(one) for one in self.marker.lost] if self.marker else [],
            "error": self.error,
        }


async def _restore_all(settings: "Settings", wanted: str | None, *, adopt: bool) -> list[RestoredWorkspace]:
    from toolcrib.storage.database import Database
    from toolcrib.wiring.tool_runtime import assemble

    async with Database.open(settings.database_url, settings.system_url, pool_size=4) as database:
        engine = assemble(settings, database)
        try:
            found = await engine.stores.workspaces.homed_on(settings.node_name)
            chosen = [one for one in found if wanted in (None, one.name, str(one.id))]
            if wanted is not None and not chosen:
                raise NotFound(f"Node {settings.node_name!r} has no workspace {wanted!r}.")
            return [await _restored(engine, one, adopt=adopt) for one in chosen]
        finally:
            engine.shell.close()


async def _restored(engine: "ToolRuntime", workspace: "HomedWorkspace", *, adopt: bool) -> RestoredWorkspace:
    trees = engine.workspace_services.sync.trees
    try:
        return RestoredWorkspace(workspace, await trees.complete(workspace.id, asked=not adopt, adopt=adopt))
    except (OSError, ToolcribError) as error:
        return RestoredWorkspace(workspace, error=str(error))


def _print(restored: list[RestoredWorkspace], *, node: str) -> None:
    for one in restored:
        name = one_line(one.workspace.name, 60)
        if one.error is not None:
            typer.secho(f"{name}: not restored: {one_line(one.error, 500)}", fg=typer.colors.RED, err=True)
        if one.marker is None or not one.marker.trees:
            continue
        typer.echo(f"{name}: {one.marker.files:,} files and folders restored.")
        for lost in one.marker.lost:
            size = f", {lost.bytes:,} bytes" if lost.bytes else ""
            typer.secho(
                f"  Lost: {one_line(lost.path, 200)} ({one_line(lost.reason, 600)}{size})", fg=typer.colors.YELLOW
            )
    markers = [one.marker for one in restored if one.marker is not None]
    rebuilt = sum(bool(marker.trees) for marker in markers)
    typer.echo(
        f"Node {node}: {len(restored):,} workspaces, of which {rebuilt:,} were restored and "
        f"{len(markers) - rebuilt:,} had their files; {sum(len(marker.lost) for marker in markers):,} losses."
    )
