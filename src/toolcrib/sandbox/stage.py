"""The way from the server to bubblewrap: root is given up, overlays are mounted in a user namespace.

Every step is an exec of the one before, so that what is started here is the server's own child and dies with it. Built
of the system's small programs: a Python of our own would take longer to start than all of them together.
"""

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from toolcrib.sandbox import root_stage

Owner = tuple[int, int]

PATH: Final = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
# Its exit code when it could not prepare the view; what went wrong is on its output.
UNPREPARED: Final = root_stage.UNPREPARED

# The death signal is set before the parent is looked at: a server that died in between leaves nothing running.
_SCRIPT: Final = f"""
[ "$PPID" = "$1" ] || exit {UNPREPARED}
shift
while [ "$1" != -- ]; do
    exec 3<"$1" || exit {UNPREPARED}
    mount -n -t overlay overlay -o "$2" "$3" || exit {UNPREPARED}
    shift 3
done
shift
exec 3<&-
exec "$@"
"""


# Owns nothing on any disk and runs nothing else: whom commands of a root server run as.
NOBODY: Final = 2_000_000_001


@dataclass(frozen=True, slots=True)
class Layer:
    """A tree and how a view of it is mounted: mount's options, with descriptor 3 open on the tree, and where."""

    tree: Path
    options: str | None = None
    merged: str = ""


def staged(command: Sequence[str], layers: Sequence[Layer], *, staging: Path, root_for: Owner | None) -> list[str]:
    """``command`` behind all the steps before it. A root server gives it up: ``root_for`` owns the trees then."""
    if root_for:
        return _root_staged(command, layers, staging, root_for)
    argv: list[str] = []
    mounts = [layer for layer in layers if layer.options]
    if mounts:
        argv += ["unshare", "--user", "--map-root-user", "--mount", "--propagation", "private", "--"]
    argv += ["setpriv", "--pdeathsig", "KILL", "--", "sh", "-c", _SCRIPT, "stage", str(os.getpid())]
    for mount in mounts:
        argv += [str(mount.tree), str(mount.options), mount.merged]
    return [*argv, "--", *command]


def _root_staged(command: Sequence[str], layers: Sequence[Layer], staging: Path, owner: Owner) -> list[str]:
    told = {
        "parent": os.getpid(),
        "owner": owner,
        "nobody": NOBODY,
        "staging": str(staging),
        "zones": [{"tree": str(layer.tree), "options": layer.options, "merged": layer.merged} for layer in layers],
        "command": list(command),
    }
    return [sys.executable, "-I", "-S", root_stage.__file__, json.dumps(told)]
