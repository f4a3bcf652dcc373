"""Tells in a chat what waits for a person, where they decide, and how it goes on."""

from toolcrib.domain.runs import Run
from toolcrib.server.services import Services
from toolcrib.server.waiting import in_brief, page_of
from toolcrib.storage.database import Tenant


async def notice(services: Services, tenant: Tenant, run: Run, *, origin: str) -> str:
    """The lines at the end of an answer that could not be finished yet."""
    lines = ["**A person must decide before this goes on:**"]
    for approval in await services.approvals.open(tenant, session_id=run.session_id):
        page = page_of(origin, tenant.workspace_id, approval.id)
        lines.append(f"- {in_brief(approval)}: allow or deny it at {page}")
    for question in await services.questions.open(tenant, session_id=run.session_id):
        page = page_of(origin, tenant.workspace_id, question.id)
        lines.append(f"- {in_brief(question)}: answer it at {page}")
    lines.append("\n`toolcrib approve` and `toolcrib answer` do the same. Then send any message: you hear how it went.")
    return "\n".join(lines)
