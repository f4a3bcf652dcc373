"""Tells what an undo changed, or would change."""

from collections.abc import Mapping
from typing import Any

import typer

from toolcrib.cli.showing import one_line

_VERBS = {"made": "restored", "deleted": "removed", "changed": "changed back", "moved": "moved back"}


def tell_changes(found: Mapping[str, Any], *, undone: bool) -> None:
    """The changes, a line each, and what others did since."""
    would = "would be " if found.get("dry_run") else ""
    for change in found["changes"]:
        source = f" (from {one_line(change['from_path'], 100)})" if change.get("from_path") else ""
        typer.echo(
            f"  {would}{_VERBS.get(change['change'], change['change'])}: {one_line(change['path'], 100)}{source}"
        )
    for clash in found["conflicts"]:
        typer.secho(f"  left alone: {one_line(clash['path'], 100)} ({one_line(clash['reason'], 200)})", fg="yellow")
    count = len(found["changes"])
    files = "1 file" if count == 1 else f"{count:,} files"
    all_in_all = (
        ("Would undo" if undone else "Would redo") if found.get("dry_run") else ("Undone" if undone else "Redone")
    )
    typer.echo(f"{all_in_all}: {files}.")
