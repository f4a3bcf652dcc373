"""Finishes after a crash: every committed change that is not on this node's disk yet."""

import structlog

from toolcrib.core.errors import ToolcribError
from toolcrib.storage.database import Tenant
from toolcrib.storage.files import FileStore
from toolcrib.workspace.sync.reconcile import Reconciler

log = structlog.get_logger(__name__)


async def recover(files: FileStore, sync: Reconciler, *, node: str) -> int:
    """Runs before the server answers. Returns how many files were looked after.

    A workspace whose disk cannot be written is left as it is, for its own calls to fail on: what is pending there
    stays pending, and is tried again when something touches it. The others do not wait for it.
    """
    found = 0
    for workspace_id in await files.workspaces_pending(node):
        try:
            found += await sync.recover(Tenant(workspace_id))
        except (OSError, ToolcribError) as error:
            log.error(
                "recovery.failed",
                workspace_id=str(workspace_id),
                error=str(error),
                remedy="Make the workspace's directory writable; its changes are brought to disk when it is next used.",
            )
    if found:
        log.info("recovery.done", files=found)
    return found
