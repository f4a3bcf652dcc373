"""Tells in a chat what waits for a person, where they decide, and how it goes on."""

from collections.abc import Iterator
from typing import Final

from pydantic_core import to_json

from toolcrib.domain.approvals import Approval
from toolcrib.domain.questions import Question
from toolcrib.domain.runs import Run
from toolcrib.server.links import waiting_link
from toolcrib.server.services import Services
from toolcrib.storage.database import Tenant

_MOST_PATHS: Final = 5
_LONGEST: Final = 300


async def notice(services: Services, tenant: Tenant, run: Run, *, origin: str) -> str:
    """The lines at the end of an answer that could not be finished yet."""
    lines = ["**A person must decide before this goes on:**"]
    for approval in await services.approvals.open(tenant, session_id=run.session_id):
        link = waiting_link(origin, tenant.workspace_id, "approval", approval.id)
        lines.append(f"- {_quoted(approval.tool)} {_about(approval)}: allow or deny it at {link}")
    for question in await services.questions.open(tenant, session_id=run.session_id):
        link = waiting_link(origin, tenant.workspace_id, "question", question.id)
        lines.append(f"- {_asked(question)}: answer it at {link}")
    lines.append("\n`toolcrib approve` and `toolcrib answer` do the same. Then send any message: you hear how it went.")
    return "\n".join(lines)


def _about(approval: Approval) -> str:
    paths = [str(change["path"]) for change in approval.changes if change.get("path")]
    if not paths:
        return _quoted(to_json(approval.shown).decode())
    more = f" and {len(paths) - _MOST_PATHS} more" if len(paths) > _MOST_PATHS else ""
    return ", ".join(map(_quoted, paths[:_MOST_PATHS])) + more


def _asked(question: Question) -> str:
    return " ".join(_quoted(item.question) for item in question.items)


def _quoted(text: str) -> str:
    """What a model wrote, so that it cannot pass for ours: one line, and no marks that a chat would obey."""
    return f"`{''.join(_plain(text))[:_LONGEST]}`"


def _plain(text: str) -> Iterator[str]:
    for sign in text:
        if sign == "`":
            yield "'"
        else:
            yield sign if sign.isprintable() else " "
