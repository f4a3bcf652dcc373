"""Questions that calls ask people: lists and answers them."""

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import Field

from toolcrib.api.api_services import Injected
from toolcrib.api.auth.principal import APerson, Authenticated, tenant_for
from toolcrib.api.http_errors import examples
from toolcrib.api.request_guard import StrictRoute
from toolcrib.api.schema_base import InModel, OutModel, Page
from toolcrib.core.ids import QuestionId, SessionId
from toolcrib.core.questions import QuestionRequest, QuestionState
from toolcrib.events.event_payloads import question_items

router = APIRouter(prefix="/workspaces/{workspace_id}/questions", tags=["questions"], route_class=StrictRoute)


class ButtonOut(OutModel):
    label: str
    value: str


class QuestionOut(OutModel):
    name: str
    question: str
    schema_: dict[str, Any] = Field(alias="schema", description="JSON Schema of the answer.")
    buttons: list[ButtonOut] | None = None


class QuestionPauseOut(OutModel):
    """A question request, with its answers once there are some."""

    id: UUID
    call_id: UUID
    session_id: UUID | None
    run_id: UUID | None
    agent_id: UUID | None
    questions: list[QuestionOut] = Field(description="One to four questions.")
    state: QuestionState
    answers: dict[str, Any] | None
    by_button: list[str]
    answered_by: UUID | None
    answered_at: datetime | None
    created_at: datetime
    expires_at: datetime


class AnswersIn(InModel):
    """One answer per question, by name."""

    answers: dict[str, Any] = Field(examples=[{"framework": "Vitest"}])
    by_button: list[str] = Field(default=[], max_length=4, description="Names of the questions answered with a button.")


@router.get(
    "", response_model_exclude_unset=True, responses=examples("INVALID_TOKEN", "FORBIDDEN"), name="list_questions"
)
async def list_all(
    workspace_id: UUID,
    principal: Authenticated,
    services: Injected,
    session_id: UUID | None = None,
    all: Annotated[bool, Query(description="Include questions that are no longer pending.")] = False,  # noqa: FBT002 - a query parameter, passed by name
    after: UUID | None = None,
    limit: int = Query(default=100, ge=1, le=500),
) -> Page[QuestionPauseOut]:
    """List the pending questions, oldest first. An agent sees its own."""
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
async def get(workspace_id: UUID, question_id: UUID, principal: Authenticated, services: Injected) -> QuestionPauseOut:
    """Return one question in any state."""
    return _shown(await services.questions.get(tenant_for(principal, workspace_id), QuestionId(question_id)))


@router.post(
    "/{question_id}/answer",
    response_model_exclude_unset=True,
    responses=examples("VALIDATION_ERROR", "INVALID_TOKEN", "FORBIDDEN", "NOT_FOUND", "CONFLICT"),
    name="answer_question",
)
async def answer(
    workspace_id: UUID, question_id: UUID, given: AnswersIn, principal: APerson, services: Injected
) -> QuestionPauseOut:
    """Answer a question. Members only. Each answer must match the question's schema. The first answer counts."""
    found = await services.questions.answer(
        tenant_for(principal, workspace_id),
        QuestionId(question_id),
        given.answers,
        by_button=given.by_button,
        via="rest",
    )
    return _shown(found)


def _shown(question: QuestionRequest) -> QuestionPauseOut:
    return QuestionPauseOut(
        id=question.id,
        call_id=question.call_id,
        session_id=question.session_id,
        run_id=question.run_id,
        agent_id=question.agent_id,
        questions=[QuestionOut.model_validate(item) for item in question_items(question)],
        state=question.state,
        answers=None if question.answers is None else dict(question.answers),
        by_button=list(question.by_button),
        answered_by=question.answered_by,
        answered_at=question.answered_at,
        created_at=question.created_at,
        expires_at=question.expires_at,
    )
