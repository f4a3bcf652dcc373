"""Builds the arguments of bubblewrap: what a command finds in its sandbox."""

import glob
import os
import shutil
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final

# Only the system's binary: AppArmor allows user namespaces by program path.
_SYSTEM_PATH: Final = "/usr/bin:/bin:/usr/local/bin"
USER: Final = 1000
HOME: Final = "/home/agent"
_ROOT_LINKS: Final = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_ETC: Final = (
    "/etc/alternatives",
    "/etc/ca-certificates",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
)
PASSWD: Final = f"agent:x:{USER}:{USER}:agent:{HOME}:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n"
GROUP: Final = f"agent:x:{USER}:\nnogroup:x:65534:\n"
HOSTS: Final = "127.0.0.1 localhost sandbox\n::1 localhost\n"


@dataclass(frozen=True, slots=True)
class BindMount:
    """A host directory or file, and its path in the view."""

    source: Path
    target: str
    writable: bool = False


def find_bubblewrap() -> str | None:
    return shutil.which("bwrap", path=_SYSTEM_PATH)


def arguments(
    binary: str,
    command: Sequence[str],
    *,
    binds: Sequence[BindMount],
    cwd: str,
    environment: Mapping[str, str],
    seccomp: int,
    status: int,
) -> list[str]:
    """Build the command line. Unshares each namespace by name: `--unshare-all` would ignore what it cannot unshare."""
    argv = [binary, "--unshare-user", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"]
    argv += ["--unshare-cgroup-try", "--disable-userns", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    argv += ["--uid", str(USER), "--gid", str(USER), "--hostname", "sandbox", "--clearenv"]
    for name, value in environment.items():
        argv += ["--setenv", name, value]
    argv += _system()
    argv += ["--proc", "/proc", "--dev", "/dev"]
    for bind in binds:
        argv += ["--bind" if bind.writable else "--ro-bind", str(bind.source), bind.target]
    # Both are in memory, without a size limit: nothing may be written there.
    argv += ["--remount-ro", "/dev", "--remount-ro", "/"]
    argv += ["--chdir", cwd, "--seccomp", str(seccomp), "--json-status-fd", str(status)]
    return [*argv, "--", *command]


@cache
def _system() -> list[str]:
    """Bind the host's programs and libraries read-only, and of /etc only what they need. Computed once."""
    argv = ["--ro-bind", "/usr", "/usr"]
    for name in _ROOT_LINKS:
        path = f"/{name}"
        if os.path.islink(path):
            argv += ["--symlink", os.readlink(path), path]
        elif os.path.isdir(path):
            argv += ["--ro-bind", path, path]
    for path in (*_ETC, *sorted(glob.glob("/etc/java-*"))):
        argv += ["--ro-bind-try", path, path]
    return argv


@dataclass(frozen=True, slots=True)
class ViewMount:
    """One directory of a command's view.

    Attributes:
        target: Its path in the view.
        masked: Files or folders, relative to ``root``, that are empty in the view.
        substitutes: The bytes that masked files have in the view, where they are not empty.
        fixed: Others that are read-only. Only a live view applies them; elsewhere the effect is checked afterwards.
        isolated: Behind an overlay even if it is read-only and nothing is masked: a Unix socket in it then reaches no
            daemon.
        kept_bytes: If set, it is written directly, is no part of the effect, and may have at most so many bytes.
    """

    name: str
    root: Path
    target: str
    writable: bool = False
    masked: Collection[str] = field(default_factory=frozenset)
    substitutes: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    fixed: Collection[str] = field(default_factory=frozenset)
    kept_bytes: int = 0
    isolated: bool = False


# The server's own interpreter, outside its virtual environment. Runs Toolcrib's programs inside the sandbox.
INTERPRETER = os.path.realpath(sys.executable)
_HOME_OF_PYTHON = Path(sys.base_prefix).resolve()
# A mount for it, unless it is among the system's programs, which every view has.
INTERPRETER_MOUNTS = (
    () if _HOME_OF_PYTHON.is_relative_to("/usr") else (ViewMount("python", _HOME_OF_PYTHON, str(_HOME_OF_PYTHON)),)
)


def is_masked(path: str, masked: Collection[str]) -> bool:
    """Whether ``path`` is masked, or below a masked one."""
    if not masked:
        return False
    parts = path.split("/")
    return any("/".join(parts[:count]) in masked for count in range(1, len(parts) + 1))
