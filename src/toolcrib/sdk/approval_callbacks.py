"""Lets a program decide approvals and answer questions with callback functions."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

from toolcrib.client import ApprovalData, QuestionData, StreamMessage
from toolcrib.core.errors import Conflict, NotFound, ToolcribError
from toolcrib.sdk.workspace_location import WorkspaceLocation


@dataclass(frozen=True, slots=True)
class Approve:
    """Approves a call; ``scope`` may extend the approval to the session, or until someone revokes it."""

    scope: Literal["once", "session", "always"] = "once"


@dataclass(frozen=True, slots=True)
class Reject:
    """Rejects a call with a reason, which the agent receives."""

    reason: str


# True approves and False rejects this one call.
CallbackDecision = bool | Approve | Reject
ApproveCallback = Callable[[ApprovalData], CallbackDecision]
# Returns a value for each question, by its name.
AnswerCallback = Callable[[QuestionData], Mapping[str, Any]]

NOBODY = Reject("There is no approval callback.")


class NoAnswerCallback(ToolcribError):
    """The agent asked a question, and the program has no ``answer`` callback."""

    code = "NOBODY_TO_ANSWER"


class ApprovalCallbacks:
    """Calls the program's callbacks for approvals and questions of one workspace, once for each."""

    def __init__(
        self, location: WorkspaceLocation, *, approve: ApproveCallback | None, answer: AnswerCallback | None
    ) -> None:
        self._location = location
        self._approve = approve
        self._answer = answer
        self._asked: set[str] = set()

    def handle(self, message: StreamMessage) -> None:
        """Handle a stream message: decide an approval or answer a question. Other messages are ignored.

        Raises:
            NoAnswerCallback: A question came, and there is no ``answer`` callback.
        """
        waiting_id = message.payload.get("approvalId") or message.payload.get("questionId")
        if message.type not in ("chat:tool-confirm", "chat:question") or waiting_id in self._asked:
            return
        self._asked.add(str(waiting_id))
        # Someone else may have decided first.
        with suppress(Conflict, NotFound):
            if message.type == "chat:question":
                self._question(UUID(waiting_id))
            else:
                self._approval(UUID(waiting_id))

    def _approval(self, approval_id: UUID) -> None:
        approval = self._location.client.approval(self._location.id, approval_id)
        if approval.state != "open":
            return
        verdict = self._approve(approval) if self._approve else NOBODY
        match verdict:
            case Approve(scope):
                rule = approval.offered if scope != "once" else None
                self._location.client.decide(self._location.id, approval, approved=True, scope=scope, rule=rule)
            case Reject(reason):
                self._location.client.decide(self._location.id, approval, approved=False, reason=reason)
            case _:
                # Anything but a clear True is a rejection.
                self._location.client.decide(self._location.id, approval, approved=verdict is True)

    def _question(self, question_id: UUID) -> None:
        question = self._location.client.question(self._location.id, question_id)
        if question.state != "open":
            return
        if self._answer is None:
            asked = "; ".join(str(item["question"]) for item in question.questions)
            raise NoAnswerCallback(f"The agent asks: {asked} Pass a callback: Toolcrib(answer=…)")
        answers = self._answer(question)
        self._location.client.answer(self._location.id, question_id, answers, by_button=_pressed(question, answers))


def _pressed(question: QuestionData, answers: Mapping[str, Any]) -> list[str]:
    """Return the names of the questions that were answered with a button's value."""
    return [
        item["name"]
        for item in question.questions
        if any(button["value"] == answers.get(item["name"]) for button in item.get("buttons") or ())
    ]
