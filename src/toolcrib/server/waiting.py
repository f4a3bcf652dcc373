"""What waits for a person, in words, and where they are sent to decide it. What agents wrote cannot pass for ours."""

from typing import Final
from uuid import UUID

from pydantic_core import to_json
from starlette.requests import Request

from toolcrib.domain.approvals import Approval
from toolcrib.domain.questions import Question

_MOST_PATHS: Final = 5
_LONGEST: Final = 300


def origin_of(request: Request) -> str:
    """By what name the client calls this server; the edge has let in none but the operator's."""
    return str(request.base_url).rstrip("/")


def page_of(origin: str, workspace_id: UUID, number: UUID) -> str:
    """Where an approval or a question is decided in the web UI."""
    return f"{origin}/w/{workspace_id}/decisions/{number}"


def in_brief(waiting: Approval | Question) -> str:
    """What a call would do, or what it asks, in a line."""
    if isinstance(waiting, Question):
        return " ".join(_quoted(item.question) for item in waiting.items)
    paths = [str(change["path"]) for change in waiting.changes if change.get("path")]
    more = f" and {len(paths) - _MOST_PATHS} more" if len(paths) > _MOST_PATHS else ""
    about = ", ".join(map(_quoted, paths[:_MOST_PATHS])) + more if paths else _quoted(to_json(waiting.shown).decode())
    return f"{_quoted(waiting.tool)} {about}"


def _quoted(text: str) -> str:
    """One line, and no marks that a chat would obey."""
    plain = "".join(sign if sign.isprintable() else " " for sign in text.replace("`", "'"))
    return f"`{plain[:_LONGEST]}`"
