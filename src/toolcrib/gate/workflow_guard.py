"""Enforces a session's workflow on its agents, whichever tool they use to change the workflow document.

People are not restricted: someone who repairs a run may move it to any step.
"""

from dataclasses import replace

from toolcrib.core.change_sets import FileChange
from toolcrib.core.errors import InvalidFrontmatter, NotFound
from toolcrib.core.files import EntryKind
from toolcrib.core.ids import SessionId
from toolcrib.core.packages import WORKFLOW, Workflow
from toolcrib.core.paths import WorkspacePath
from toolcrib.policy.workflows import mismatch, refused, require_step
from toolcrib.storage.blobs import BlobStore
from toolcrib.storage.database import Tenant
from toolcrib.storage.sessions import SessionStore
from toolcrib.tools.context import ToolContext
from toolcrib.workspace.text.worker_calls import answer_flaw, frontmatter_in


class WorkflowGuard:
    """Checks drafts before a person is asked about them and before they are committed."""

    def __init__(self, sessions: SessionStore, blobs: BlobStore) -> None:
        self._sessions = sessions
        self._blobs = blobs

    async def check(self, context: ToolContext, session_id: SessionId) -> None:
        """Check the draft of an agent's call against the session's workflow.

        Raises:
            SchemaMismatch: The frontmatter does not match the workflow's schema.
            InvalidTransition: The workflow has no such step.
            InvalidFrontmatter: The frontmatter cannot be parsed.
        """
        caller = context.caller
        document = replace(WORKFLOW, scope=caller.state_scope)
        changes = [one for one in context.draft.changes.values() if document in one.paths]
        if not changes:
            return
        workflow = await self._sessions.workflow(Tenant.of(caller), session_id)
        if workflow is None:
            return
        body = await self._body(changes, document, workflow, Tenant.of(caller))
        after = await frontmatter_in(body)
        if workflow.schema is not None and (flaw := await answer_flaw(workflow.schema, after)):
            raise mismatch(flaw)
        require_step(workflow, await _before(context, document), after)

    async def _body(
        self, changes: list[FileChange], document: WorkspacePath, workflow: Workflow, tenant: Tenant
    ) -> bytes:
        """Return the contents of the document after the draft."""
        put = [one for one in changes if one.after is not None and one.after.path == document]
        if not put or changes[-1].vacates_path:
            raise refused(workflow, f"{WORKFLOW} belongs to the run and cannot be moved or deleted.")
        after = put[-1].after
        assert after is not None
        if after.kind is not EntryKind.FILE or after.sha256 is None:
            raise refused(workflow, f"{WORKFLOW} must be a text document.")
        return put[-1].body if put[-1].body is not None else await self._blobs.get(tenant, after.sha256)


async def _before(context: ToolContext, document: WorkspacePath) -> dict[str, object] | None:
    """Return the current frontmatter, or None if there is no readable one."""
    try:
        return await frontmatter_in((await context.tree.read(document)).body)
    except (NotFound, InvalidFrontmatter):
        return None
