"""Describes pending approvals and questions as text with a link.

Escapes text of agents, so that it cannot pose as ours.
"""

from typing import Final
from uuid import UUID

from pydantic_core import to_json
from starlette.requests import Request

from toolcrib.api.api_services import ApiServices
from toolcrib.core.approvals import Approval
from toolcrib.core.display_text import escape_line
from toolcrib.core.questions import QuestionRequest
from toolcrib.core.runs import Run
from toolcrib.storage.database import Tenant

_MOST_PATHS: Final = 5
_LONGEST: Final = 300


def origin_of(request: Request) -> str:
    """Return the origin under which the client reached this server. The request guard has checked the host."""
    return str(request.base_url).rstrip("/")


def pause_url(origin: str, workspace_id: UUID, number: UUID) -> str:
    """Return the page of the web UI where an approval or a question is decided."""
    return f"{origin}/w/{workspace_id}/approvals/{number}"


def pause_summary(waiting: Approval | QuestionRequest) -> str:
    """Return what a call would do, or what it asks, in one line."""
    if isinstance(waiting, QuestionRequest):
        return " ".join(_quoted(item.question) for item in waiting.items)
    paths = [str(change["path"]) for change in waiting.changes if change.get("path")]
    more = f" and {len(paths) - _MOST_PATHS} more" if len(paths) > _MOST_PATHS else ""
    about = ", ".join(map(_quoted, paths[:_MOST_PATHS])) + more if paths else _quoted(to_json(waiting.shown).decode())
    return f"{_quoted(waiting.tool)} {about}"


def _quoted(text: str) -> str:
    """Return the text in one line, without characters that a chat client would render."""
    plain = escape_line(text.replace("`", "'"))
    return f"`{plain[:_LONGEST]}`"


async def notice(services: ApiServices, tenant: Tenant, run: Run, *, origin: str) -> str:
    """Return the last lines of an answer that waits for a person: what is pending and where to decide it."""
    lines = ["**Waiting for a person:**"]
    for approval in await services.approvals.open(tenant, session_id=run.session_id):
        page = pause_url(origin, tenant.workspace_id, approval.id)
        lines.append(f"- {pause_summary(approval)}: approve or reject it at {page}")
    for question in await services.questions.open(tenant, session_id=run.session_id):
        page = pause_url(origin, tenant.workspace_id, question.id)
        lines.append(f"- {pause_summary(question)}: answer it at {page}")
    lines.append("\n`toolcrib approve` and `toolcrib answer` do the same. Then send any message to see the outcome.")
    return "\n".join(lines)
