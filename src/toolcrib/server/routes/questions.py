"""Questions that calls put to people, and answering them."""

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import Field

from toolcrib.domain.ids import QuestionId, SessionId
from toolcrib.domain.questions import Question, QuestionState
from toolcrib.engine.telling import items_shape
from toolcrib.server.auth import APerson, Authenticated, tenant_for
from toolcrib.server.bodies import StrictRoute
from toolcrib.server.errors import examples
from toolcrib.server.services import Injected
from toolcrib.server.shapes import Given, Page, Shown

router = APIRouter(prefix="/workspaces/{workspace_id}/questions", tags=["questions"], route_class=StrictRoute)


class ButtonShape(Shown):
    label: str
    value: str


class ItemShape(Shown):
    name: str
    question: str
    schema_: dict[str, Any] = Field(alias="schema", description="JSON Schema of the answer.")
    buttons: list[ButtonShape] | None = None


class QuestionAnswer(Shown):
    """A question, and its answers once there are some."""

    id: UUID
    call_id: UUID
    session_id: UUID | None
    run_id: UUID | None
    agent_id: UUID | None
    questions: list[ItemShape] = Field(description="One to four: name, question, JSON Schema, buttons.")
    state: QuestionState
    answers: dict[str, Any] | None
    by_button: list[str]
    answered_by: UUID | None
    answered_at: datetime | None
    created_at: datetime
    expires_at: datetime


class Answered(Given):
    """An answer to each question, by its name."""

    answers: dict[str, Any] = Field(examples=[{"framework": "Vitest"}])
    by_button: list[str] = Field(
        default=[], max_length=4, description="The names of the questions that were answered with a button."
    )


@router.get(
    "", response_model_exclude_unset=True, responses=examples("INVALID_TOKEN", "FORBIDDEN"), name="list_questions"
)
async def list_all(
    workspace_id: UUID,
    principal: Authenticated,
    services: Injected,
    session_id: UUID | None = None,
    all: Annotated[bool, Query(description="Answered and ended ones too.")] = False,  # noqa: FBT002 - by name, in the address
    after: UUID | None = None,
    limit: int = Query(default=100, ge=1, le=500),
) -> Page[QuestionAnswer]:
    """What waits for an answer, the oldest first. An agent sees its own."""
    found = await services.questions.page(
        tenant_for(principal, workspace_id),
        session_id=None if session_id is None else SessionId(session_id),
        only_open=not all,
        after=None if after is None else QuestionId(after),
        limit=limit,
    )
    items = [_shown(question) for question in found]
    return Page(items=items, next=str(items[-1].id) if len(items) == limit else None)


@router.get(
    "/{question_id}",
    response_model_exclude_unset=True,
    responses=examples("INVALID_TOKEN", "FORBIDDEN", "NOT_FOUND"),
    name="get_question",
)
async def get(workspace_id: UUID, question_id: UUID, principal: Authenticated, services: Injected) -> QuestionAnswer:
    """One question, open or not."""
    return _shown(await services.questions.get(tenant_for(principal, workspace_id), QuestionId(question_id)))


@router.post(
    "/{question_id}/answer",
    response_model_exclude_unset=True,
    responses=examples("VALIDATION_ERROR", "INVALID_TOKEN", "FORBIDDEN", "NOT_FOUND", "CONFLICT"),
    name="answer_question",
)
async def answer(
    workspace_id: UUID, question_id: UUID, given: Answered, principal: APerson, services: Injected
) -> QuestionAnswer:
    """Answers; for members. Each answer must fit the schema that asked for it. The first answer counts."""
    found = await services.questions.answer(
        tenant_for(principal, workspace_id),
        QuestionId(question_id),
        given.answers,
        by_button=given.by_button,
        via="rest",
    )
    return _shown(found)


def _shown(question: Question) -> QuestionAnswer:
    return QuestionAnswer(
        id=question.id,
        call_id=question.call_id,
        session_id=question.session_id,
        run_id=question.run_id,
        agent_id=question.agent_id,
        questions=[ItemShape.model_validate(item) for item in items_shape(question)],
        state=question.state,
        answers=None if question.answers is None else dict(question.answers),
        by_button=list(question.by_button),
        answered_by=question.answered_by,
        answered_at=question.answered_at,
        created_at=question.created_at,
        expires_at=question.expires_at,
    )
