"""``toolcrib audit``: verify the audit log, export checkpoints of it, accept a restore."""

import getpass
import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolcrib.cli.command_options import (
    JsonOption,
    WorkspaceLocation,
    WorkspaceSelection,
    in_database,
    with_options,
)
from toolcrib.cli.terminal_text import print_json
from toolcrib.core.errors import ToolcribError
from toolcrib.settings import load_settings

if TYPE_CHECKING:
    from toolcrib.gate.audit_verification import AuditVerification
    from toolcrib.storage.database import Database

app = typer.Typer(help="Inspect the audit log.", no_args_is_help=True)


@app.command()
@with_options(WorkspaceSelection)
def verify(
    selection: WorkspaceSelection,
    as_json: JsonOption = False,
    full: Annotated[bool, typer.Option("--full", help="Recompute all seals, not only new ones.")] = False,
    checkpoint: Annotated[
        Path | None, typer.Option(help="A file of exported checkpoints; the log must contain their seals.")
    ] = None,
) -> None:
    """Verify the audit log. Exits with 1 if a record was changed, removed, added or reordered.

    Verifies the log of this directory, of --server, or of the database at TOOLCRIB_DATABASE_URL if that is set.
    Skips seals that an earlier verification recomputed, unless `--full` is given.

    Example: toolcrib audit verify --json
    """
    kept = _read(checkpoint)
    if _is_in_database(selection):
        found = _verify_in_database(full=full, kept=kept)
    else:
        with selection.open() as location:
            found = _verify_through_server(location, full=full, kept=kept)
    if as_json:
        print_json({"whole": not found.problems, **asdict(found)})
    else:
        _print(found)
    raise typer.Exit(1 if found.problems else 0)


@app.command()
@with_options(WorkspaceSelection)
def checkpoint(
    selection: WorkspaceSelection,
    file: Annotated[Path | None, typer.Argument(help="File to append to; by default standard output.")] = None,
) -> None:
    """Export a signed checkpoint of the end of the audit log.

    Keep it where database administrators cannot write. `toolcrib audit verify --checkpoint FILE` then detects a
    log that was truncated or rolled back.

    Example: toolcrib audit checkpoint checkpoints.jsonl
    """
    if _is_in_database(selection):
        made = _checkpoint_in_database()
    else:
        with selection.open() as location:
            made = location.client.audit_checkpoint(location.id)
    if file is None:
        print_json(made)
        return
    with file.open("a") as opened:
        opened.write(json.dumps(made) + "\n")
    typer.echo(f"Wrote seal {made['number']} to {file}, signed by {made['public_key']}.")


@app.command("accept-restore")
def accept_restore(
    yes: Annotated[bool, typer.Option("--yes", help="Skip the confirmation.")] = False,
) -> None:
    """Accept a database that was restored from a backup, and continue its audit log from there.

    Run it on each node with the settings of its server. The audit log records it, and later verifications show it.

    Example: toolcrib audit accept-restore --yes
    """
    if not yes:
        typer.confirm(
            "Seals and records made after the backup are lost. Was this database restored from a backup?", abort=True
        )
    try:
        before, after = _accept()
    except ToolcribError as error:
        typer.secho(error.message, fg=typer.colors.RED, err=True)
        raise typer.Exit(1) from None
    typer.echo(
        f"Restore accepted and recorded. The audit log continues from seal {after}; this node had seal {before}."
    )


def _is_in_database(selection: WorkspaceSelection) -> bool:
    return selection.server is None and "TOOLCRIB_DATABASE_URL" in os.environ


def _verify_in_database(*, full: bool, kept: str | None) -> "AuditVerification":
    from toolcrib.gate.audit_checkpoints import CheckpointSigner, UnreadableCheckpoint
    from toolcrib.gate.audit_verification import AuditVerification
    from toolcrib.gate.audit_verification import verify as verify_chain
    from toolcrib.storage.audit import AuditSealStore
    from toolcrib.wiring.server import audit_seal_key

    settings = load_settings()
    key = audit_seal_key(settings)
    try:
        checkpoints = CheckpointSigner(key).read_all(kept) if kept is not None else ()
    except UnreadableCheckpoint as error:
        return AuditVerification(0, 0, 0, (f"Invalid checkpoint: {error}",))
    files = {"anchor": settings.audit_anchor, "mark": settings.audit_mark}

    async def verified(database: "Database") -> AuditVerification:
        return await verify_chain(AuditSealStore(database), key, **files, full=full, checkpoints=checkpoints)

    return in_database(verified, settings)


def _checkpoint_in_database() -> dict[str, Any]:
    from toolcrib.gate.audit_verification import AuditVerifier
    from toolcrib.storage.audit import AuditSealStore
    from toolcrib.wiring.server import audit_seal_key

    settings = load_settings()
    key, anchor = audit_seal_key(settings), settings.audit_anchor
    return in_database(
        lambda database: AuditVerifier(AuditSealStore(database), key, anchor=anchor).checkpoint(), settings
    )


def _accept() -> tuple[int | None, int]:
    from toolcrib.gate.audit_seals import accept_restore as accept
    from toolcrib.storage.audit import AuditSealStore, AuditStore
    from toolcrib.wiring.server import audit_seal_key

    settings = load_settings()
    files = {"anchor": settings.audit_anchor, "mark": settings.audit_mark}
    done = in_database(
        lambda database: accept(
            AuditSealStore(database), AuditStore(database), audit_seal_key(settings), **files, by=getpass.getuser()
        ),
        settings,
    )
    return done.before, done.after


def _verify_through_server(location: WorkspaceLocation, *, full: bool, kept: str | None) -> "AuditVerification":
    """Verifies through a server, which recomputes its chain in parts."""
    from toolcrib.gate.audit_verification import AuditVerification

    contradictions = tuple(_contradictions(location, kept)) if kept is not None else ()
    part = location.client.verify_audit(location.id, after=0 if full else None)
    since, sealed, problems = part.first, part.sealed_records, [*contradictions, *part.problems]
    while part.first < part.verified_to < part.last_seal:
        part = location.client.verify_audit(location.id, after=part.verified_to)
        sealed += part.sealed_records
        problems += part.problems
    return AuditVerification(part.verified_to, sealed, part.unsealed_records, tuple(dict.fromkeys(problems)), since)


def _contradictions(location: WorkspaceLocation, kept: str) -> list[str]:
    """Lists checkpoints whose seals the server's chain does not contain. Relies on the server, which signed them."""
    problems: list[str] = []
    for line in kept.strip().splitlines():
        try:
            note = json.loads(line)
            number, mac = int(note["number"]), str(note["mac"])
        except (ValueError, KeyError, TypeError):
            return ["Invalid checkpoint: a field is missing or has the wrong type."]
        found = location.client.verify_audit(location.id, after=number)
        if found.last_seal < number:
            problems.append(f"The audit log ends at seal {found.last_seal}, but the checkpoint has seal {number}.")
        elif found.first_mac != mac:
            problems.append(f"Seal {number} differs from the checkpoint: the audit log was sealed again.")
    return problems


def _read(file: Path | None) -> str | None:
    if file is None:
        return None
    try:
        return file.read_text()
    except OSError as error:
        raise typer.BadParameter(f"Cannot read {file}: {error.strerror}.", param_hint="--checkpoint") from None


def _print(found: "AuditVerification") -> None:
    for problem in found.problems:
        typer.secho(problem, fg=typer.colors.RED, err=True)
    state = "verification FAILED" if found.problems else "verified"
    typer.echo(f"Audit log {state}: {found.sealed_records} records in {found.seals - found.since} seals.")
    if found.since:
        typer.echo(f"{found.since} earlier seals were already verified; --full verifies them again.")
    for restore in found.restores:
        typer.echo(restore)
    if found.unsealed_records:
        typer.echo(f"{found.unsealed_records} records are not sealed yet and were not verified.")
