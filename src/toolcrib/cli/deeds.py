"""Tells what an undo changed, or would change."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.text import Text

from toolcrib.cli.showing import one_line

_VERBS = {"made": "restored", "deleted": "removed", "changed": "changed back", "moved": "moved back"}


def tell_changes(found: Mapping[str, Any], *, undone: bool) -> None:
    """The changes, a line each, and what others did since."""
    console = Console()
    for line in change_lines(found, undone=undone):
        console.print(line, soft_wrap=True)


def change_lines(found: Mapping[str, Any], *, undone: bool) -> list[Text]:
    would = "would be " if found.get("dry_run") else ""
    lines = []
    for change in found["changes"]:
        source = f" (from {one_line(change['from_path'], 100)})" if change.get("from_path") else ""
        verb = _VERBS.get(change["change"], change["change"])
        lines.append(Text(f"  {would}{verb}: {one_line(change['path'], 100)}{source}"))
    for clash in found["conflicts"]:
        said = f"  left alone: {one_line(clash['path'], 100)} ({one_line(clash['reason'], 200)})"
        lines.append(Text(said, style="yellow"))
    count = len(found["changes"])
    files = "1 file" if count == 1 else f"{count:,} files"
    all_in_all = (
        ("Would undo" if undone else "Would redo") if found.get("dry_run") else ("Undone" if undone else "Redone")
    )
    return [*lines, Text(f"{all_in_all}: {files}.")]
