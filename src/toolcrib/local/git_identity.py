"""The author of commits, from git's configuration files. Reads them without git, which runs programs that they name."""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

# A real configuration has some kilobytes.
_MAX_BYTES = 1_000_000
_SECTION = re.compile(r"\[\s*([\w.-]+)\s*(\"(?:[^\"\\]|\\.)*\")?\s*\]")
_SETTING = re.compile(r"\s*(?P<name>[A-Za-z][\w-]*)\s*=\s*(?P<value>.*)")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_COMMENT = re.compile(r"\s*[#;].*")


def git_identity(tree: Path) -> tuple[str, str] | None:
    """Return the name and address of the repository's configuration, or else of the user's; None without both."""
    found: dict[str, str] = {}
    for file in (*user_config_files(), tree / ".git" / "config"):
        found |= _identity_in(file)
    return (found["name"], found["email"]) if found.keys() >= {"name", "email"} else None


def user_config_files() -> tuple[Path, ...]:
    """Return the paths of the user's own configuration files, those that take precedence last."""
    return tuple(_user_config_files())


def _user_config_files() -> Iterator[Path]:
    with_home = os.environ.get("HOME")
    config = os.environ.get("XDG_CONFIG_HOME") or (f"{with_home}/.config" if with_home else None)
    if config:
        yield Path(config) / "git" / "config"
    if with_home:
        yield Path(with_home) / ".gitconfig"


def _identity_in(file: Path) -> Mapping[str, str]:
    try:
        if not file.is_file() or file.stat().st_size > _MAX_BYTES:
            return {}
        lines = file.read_text(errors="replace").splitlines()
    except OSError:
        return {}
    found, in_user = {}, False
    for line in lines:
        if section := _SECTION.match(line.strip()):
            in_user = section[1].lower() == "user" and section[2] is None
        elif in_user and (setting := _SETTING.match(line)):
            value = _value(setting["value"])
            if value and setting["name"].lower() in ("name", "email"):
                found[setting["name"].lower()] = value
    return found


def _value(text: str) -> str:
    """Return the value without quotes and comment. A value that git would reject, or of several lines, is empty."""
    quoted = _QUOTED.match(text)
    value = re.sub(r"\\(.)", r"\1", quoted[1]) if quoted else _COMMENT.sub("", text).strip()
    return value if value.isprintable() and not set('<>\\"') & set(value) else ""
