"""The secrets of local mode: made at random once, kept in a file that only its owner can read."""

import json
import os
import secrets
import socket
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from getpass import getuser
from pathlib import Path

from toolcrib.domain.errors import Misconfigured
from toolcrib.local.directories import Directories
from toolcrib.local.locks import held


@dataclass(frozen=True, slots=True, repr=False)
class Secrets:
    """``machine`` tells this installation from others on one database; ``email`` is who its user is there."""

    jwt_secret: str
    audit_key: str
    credentials_key: str
    owner_password: str
    app_password: str
    system_password: str
    machine: str
    email: str

    @classmethod
    def kept(cls, directories: Directories) -> "Secrets":
        """As they were made at the first start, which may be this one."""
        path = directories.secrets
        with held(directories.base / "secrets.lock"):
            if not path.exists():
                _write(path, _made())
            return _read(path)


_RANDOM = ("jwt_secret", "audit_key", "credentials_key", "owner_password", "app_password", "system_password")


def _made() -> Secrets:
    made = {name: secrets.token_urlsafe(48) for name in _RANDOM}
    return Secrets(
        **made,
        machine=secrets.token_hex(4),
        email=f"{_user_name()}@{socket.gethostname().lower()}",
    )


def _user_name() -> str:
    with suppress(OSError, KeyError):
        return getuser()
    # A container may run as a user that has no name.
    return f"user{os.getuid()}"


def _write(path: Path, made: Secrets) -> None:
    """Whole or not at all, and durable: what these lock cannot be opened without them."""
    beside = path.with_suffix(".new")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump(asdict(made), file)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


def _read(path: Path) -> Secrets:
    found = path.stat()
    if found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise Misconfigured(f"Others can read {path}, which holds secrets. Make it yours alone: chmod 600 {path}")
    try:
        said = json.loads(path.read_text())
        return Secrets(**{field.name: str(said[field.name]) for field in fields(Secrets)})
    except (ValueError, KeyError, TypeError):
        raise Misconfigured(
            f"{path} is damaged. Restore it from a backup, or move {path.parent} away and begin anew."
        ) from None
