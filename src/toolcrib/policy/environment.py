"""Which environment variables a command inherits: an allow-list, and never a secret."""

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Final

ALLOWED: Final = (
    "COLORTERM",
    "HOME",
    "LANG",
    "LANGUAGE",
    "LC_*",
    "LOGNAME",
    "NO_COLOR",
    "PATH",
    "SHELL",
    "TERM",
    "TMPDIR",
    "TZ",
    "USER",
)

_SECRET_NAME = re.compile(
    r"key|token|secret|passw|passphrase|credential|private|cookie|bearer|(?:^|_)(?:pass|pwd|auth|pat|dsn|sas)(?:_|$)",
    re.IGNORECASE,
)
_SECRET_VALUE = re.compile(
    r"://[^/\s@]*:[^/\s@]+@"  # a URL with a password
    r"|-----BEGIN [A-Z ]*PRIVATE KEY"
    r"|\b(?:sk|pk|rk)[-_][\w-]{16,}|\bgh[opsur]_\w{16,}|\bgithub_pat_\w{16,}|\bglpat-[\w-]{16,}|\bxox[a-z]-[\w-]{8,}"
    r"|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"
    r"|\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"  # a JSON web token
)


def clean_environment(env: Mapping[str, str], *, allow: Iterable[str] = ()) -> dict[str, str]:
    """Return the part of ``env`` that a command may see. ``allow`` adds names or globs, but never a secret."""
    patterns = (*ALLOWED, *allow)
    return {
        name: value
        for name, value in env.items()
        if any(fnmatchcase(name, pattern) for pattern in patterns) and not looks_secret(name, value)
    }


def looks_secret(name: str, value: str) -> bool:
    """Whether a variable's name or value is that of a key, token, secret or password."""
    return bool(_SECRET_NAME.search(name) or _SECRET_VALUE.search(value))
