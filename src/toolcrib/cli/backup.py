"""``toolcrib backup``: writes the database of a server, and on request the disk of a node, to a directory."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import toolcrib
from toolcrib.cli.command_options import JsonOption
from toolcrib.core.errors import Misconfigured

if TYPE_CHECKING:
    from pydantic import SecretStr

    from toolcrib.settings import Settings
    from toolcrib.storage.backup import RequiredKey

OwnerUrl = Annotated[
    str | None,
    typer.Option(envvar="TOOLCRIB_OWNER_DATABASE_URL", help="Connection URL of the database owner."),
]


def backup(
    directory: Annotated[Path, typer.Argument(help="A new directory for the backup.")],
    owner_url: OwnerUrl = None,
    files: Annotated[
        bool, typer.Option("--files", help="Also the data directory of this node (TOOLCRIB_DATA_DIR).")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Back up a server while it runs: the database as of one moment, with every version of every file.

    Keys are not included: the output and manifest.json name those that must be kept elsewhere. Needs pg_dump.

    Example: toolcrib backup /backups/monday --owner-url postgresql://postgres@localhost/toolcrib
    """
    # Imported here, as in the other commands.
    from toolcrib.local import postgres_binaries
    from toolcrib.settings import load_settings
    from toolcrib.storage import backup as backups

    if owner_url is None:
        raise Misconfigured(
            "No database given. Use --owner-url or TOOLCRIB_OWNER_DATABASE_URL. In local mode, stop every toolcrib "
            "and copy the whole folder ~/.local/share/toolcrib (or TOOLCRIB_HOME), which contains the keys too."
        )
    settings = load_settings()
    pg_dump = postgres_binaries.find_client("pg_dump", major=backups.server_major(owner_url))
    manifest = backups.create_backup(
        owner_url,
        directory,
        pg_dump=pg_dump,
        toolcrib=toolcrib.__version__,
        node=settings.node_name,
        keys=lambda encrypted_with: required_keys(settings, encrypted_with),
        data_dir=settings.data_dir if files else None,
    )
    if as_json:
        typer.echo((directory / backups.MANIFEST).read_text(), nl=False)
        return
    size = sum(file.bytes for file in manifest.files.values())
    rows = manifest.rows
    typer.echo(
        f"{directory}: {size / 1e6:,.1f} MB, schema {manifest.revision}; {rows['workspaces']:,} workspaces with "
        f"{rows['files']:,} files in {rows['versions']:,} versions, {rows['audit_records']:,} audit records."
    )
    for name in manifest.not_included:
        typer.echo(f"Not included: {name}.")
    typer.echo("Not included, keep them elsewhere:")
    for key in manifest.keys:
        typer.echo(f"  {key.setting} ({', '.join(key.ids)})")


def required_keys(settings: "Settings", encrypted_with: Sequence[str]) -> list["RequiredKey"]:
    """Return the keys that a restored installation needs."""
    from toolcrib.storage.backup import RequiredKey

    return [
        RequiredKey("TOOLCRIB_JWT_SECRET", "everyone must log in again", _id_of(settings.jwt_secret)),
        RequiredKey("TOOLCRIB_AUDIT_SEAL_KEY", "the audit log cannot be verified", _id_of(settings.audit_seal_key)),
        *(
            RequiredKey(
                "TOOLCRIB_CREDENTIALS_ENCRYPTION_KEY",
                "people must enter the keys of their providers and MCP servers again",
                (key,),
            )
            for key in encrypted_with
        ),
    ]


def missing_keys(settings: "Settings", keys: Sequence["RequiredKey"]) -> list[str]:
    """Return which keys of a backup these settings do not have, and what is lost without them."""
    from toolcrib.storage.provider_credentials import credentials_key_id

    encryption = [settings.credentials_encryption_key, settings.credentials_previous_encryption_key]
    present = {
        *(_id_of(settings.jwt_secret) + _id_of(settings.audit_seal_key)),
        *(credentials_key_id(key.get_secret_value()) for key in encryption if key is not None),
    }
    return [
        f"{key.setting} ({', '.join(key.ids)}): without it, {key.without_it}."
        for key in keys
        if key.ids and not present & set(key.ids)
    ]


def _id_of(secret: "SecretStr") -> tuple[str, ...]:
    from toolcrib.storage.backup import key_id

    return (key_id(secret.get_secret_value()),)
