"""Writes small files so that a crash leaves the old or the new content, and a written file survives a power cut."""

import os
from pathlib import Path
from secrets import token_hex


def replace_durably(path: Path, body: bytes) -> None:
    """Create or replace a file in one step."""
    fresh = _written(path, body)
    fresh.rename(path)
    _sync(path.parent)


def create_durably(path: Path, body: bytes) -> bool:
    """Create a file in one step. Returns False, and changes nothing, if there is one already."""
    fresh = _written(path, body)
    try:
        # Unlike a rename, a link never replaces what another process created.
        os.link(fresh, path)
    except FileExistsError:
        return False
    finally:
        fresh.unlink()
    _sync(path.parent)
    return True


def _written(path: Path, body: bytes) -> Path:
    fresh = path.with_name(f"{path.name}.{token_hex(8)}")
    with fresh.open("wb") as file:
        file.write(body)
        file.flush()
        os.fsync(file.fileno())
    return fresh


def _sync(folder: Path) -> None:
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
