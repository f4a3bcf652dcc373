"""Describes paused calls as text with a link.

Escapes text of agents, so that it cannot pose as ours.
"""

from typing import Final
from uuid import UUID

from pydantic_core import to_json
from starlette.requests import Request

from toolcrib.api.api_services import ApiServices
from toolcrib.core.display_text import escape_line
from toolcrib.core.paused_calls import PausedCall, PauseKind, QuestionRequest
from toolcrib.core.runs import Run
from toolcrib.storage.database import Tenant

_MOST_PATHS: Final = 5
_LONGEST: Final = 300


def origin_of(request: Request) -> str:
    """Return the origin under which the client reached this server. The request guard has checked the host."""
    return str(request.base_url).rstrip("/")


def pause_url(origin: str, workspace_id: UUID, pause_id: UUID) -> str:
    """Return the page of the web UI where a paused call is decided or answered."""
    return f"{origin}/w/{workspace_id}/approvals/{pause_id}"


def pause_summary(pause: PausedCall) -> str:
    """Return what a call would do, or what it asks, in one line."""
    request = pause.request
    if isinstance(request, QuestionRequest):
        return " ".join(_quoted(one.question) for one in request.questions)
    paths = [str(change["path"]) for change in request.changes if change.get("path")]
    more = f" and {len(paths) - _MOST_PATHS} more" if len(paths) > _MOST_PATHS else ""
    about = ", ".join(map(_quoted, paths[:_MOST_PATHS])) + more if paths else _quoted(to_json(request.input).decode())
    return f"{_quoted(pause.tool)} {about}"


def _quoted(text: str) -> str:
    """Return the text in one line, without characters that a chat client would render."""
    plain = escape_line(text.replace("`", "'"))
    return f"`{plain}`" if len(plain) <= _LONGEST else f"`{plain[:_LONGEST]}…` ({len(plain):,} characters)"


async def notice(services: ApiServices, tenant: Tenant, run: Run, *, origin: str) -> str:
    """Return the last lines of an answer that waits for a person: what is pending and where to decide it."""
    lines = ["**Waiting for a person:**"]
    for pause in await services.paused_calls.list(tenant, session_id=run.session_id):
        what = "approve or reject" if pause.kind is PauseKind.APPROVAL else "answer"
        lines.append(f"- {pause_summary(pause)}: {what} it at {pause_url(origin, tenant.workspace_id, pause.id)}")
    lines.append("\n`toolcrib approve` and `toolcrib answer` do the same. Then send any message to see the outcome.")
    return "\n".join(lines)
