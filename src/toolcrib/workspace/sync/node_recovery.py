"""Applies every committed change that a crash kept from this node's disk."""

import structlog

from toolcrib.core.errors import ToolcribError
from toolcrib.storage.database import Tenant
from toolcrib.storage.files import FileStore
from toolcrib.workspace.sync.reconcile import Reconciler

log = structlog.get_logger(__name__)


async def recover(files: FileStore, sync: Reconciler, *, node: str) -> int:
    """Recover all workspaces of the node before the server starts. Returns the number of files.

    A workspace with an unwritable disk is skipped: its changes stay pending and are retried when it is used. The others
    do not wait for it.
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
                remedy="Make the workspace's directory writable; its changes are written to disk at the next use.",
            )
    if found:
        log.info("recovery.completed", files=found)
    return found
