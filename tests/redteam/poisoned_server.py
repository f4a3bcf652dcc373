"""``toolcrib serve`` in which committing a file of a certain name kills the server, or freezes it forever."""

import os
import re
import signal
from typing import Any

from toolcrib.cli.main import main
from toolcrib.core.change_sets import ChangeSet
from toolcrib.workspace.changes.commit import Committer

KILL, FREEZE = "kill", "freeze"
_commit = Committer.commit


async def _poisoned(self: Committer, tenant: Any, change_set: ChangeSet, **options: Any) -> Any:
    touched = " ".join(map(str, change_set.paths))
    if KILL in touched:
        os.kill(os.getpid(), signal.SIGKILL)
    if FREEZE in touched:
        # In C, with the GIL held: nothing else in the process runs any more, not even the heartbeat.
        re.match(r"(a|a)*b", "a" * 100)
    return await _commit(self, tenant, change_set, **options)


if __name__ == "__main__":
    Committer.commit = _poisoned  # type: ignore[method-assign]
    main()
