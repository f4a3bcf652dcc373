"""Finishes after a crash: every committed change that is not on this node's disk yet."""

import structlog

from toolcrib.storage.database import Tenant
from toolcrib.storage.files import Files
from toolcrib.workspace.sync import Sync

log = structlog.get_logger(__name__)


async def recover(files: Files, sync: Sync, *, node: str) -> int:
    """Runs before the server answers. Returns how many files were looked after."""
    found = 0
    for workspace_id in await files.workspaces_pending(node):
        found += await sync.recover(Tenant(workspace_id))
    if found:
        log.info("recovery.done", files=found)
    return found
