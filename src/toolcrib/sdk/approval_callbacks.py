"""Lets a program decide approvals and answer questions with callback functions."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Literal
from uuid import UUID

from toolcrib.client import ApprovalOut, GrantRuleOut, QuestionPauseOut, StreamMessage
from toolcrib.core.errors import Conflict, NotFound, ToolcribError
from toolcrib.core.paused_calls import PauseState
from toolcrib.sdk.workspace_location import WorkspaceLocation


@dataclass(frozen=True, slots=True)
class Approve:
    """Approves a call; ``scope`` may extend the approval to the session, or until someone revokes it.

    ``rule`` says which calls it then covers: ``approval.suggested_rule`` by default, one of ``approval.other_rules``,
    or your own.
    """

    scope: Literal["once", "session", "always"] = "once"
    rule: GrantRuleOut | None = None


@dataclass(frozen=True, slots=True)
class Reject:
    """Rejects a call with a reason, which the agent receives."""

    reason: str


# True approves and False rejects this one call.
CallbackDecision = bool | Approve | Reject
ApproveCallback = Callable[[ApprovalOut], CallbackDecision]
# Returns a value for each question, by its name.
AnswerCallback = Callable[[QuestionPauseOut], Mapping[str, Any]]

# The stream messages of calls that pause.
PAUSES: Final = frozenset({"chat:tool-confirm", "chat:question"})

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
        pause_id = message.payload.get("pauseId")
        if message.type not in PAUSES or pause_id in self._asked:
            return
        self._asked.add(str(pause_id))
        # Someone else may have decided first.
        with suppress(Conflict, NotFound):
            pause = self._location.client.paused_call(self._location.id, UUID(pause_id))
            if pause.state is not PauseState.PENDING:
                return
            if isinstance(pause, ApprovalOut):
                self._decide(pause)
            else:
                self._answer_questions(pause)

    def _decide(self, approval: ApprovalOut) -> None:
        verdict = self._approve(approval) if self._approve else NOBODY
        # Anything but a clear yes is a rejection.
        approved = verdict is True or isinstance(verdict, Approve)
        self._location.client.decide(
            self._location.id,
            approval,
            approved=approved,
            scope=verdict.scope if isinstance(verdict, Approve) else "once",
            reason=verdict.reason if isinstance(verdict, Reject) else None,
            rule=verdict.rule if isinstance(verdict, Approve) else None,
        )

    def _answer_questions(self, pause: QuestionPauseOut) -> None:
        if self._answer is None:
            asked = "; ".join(one.question for one in pause.questions)
            raise NoAnswerCallback(f"The agent asks: {asked} Pass a callback: Toolcrib(answer=…)")
        answers = self._answer(pause)
        buttons = [
            one.name for one in pause.questions if answers.get(one.name) in [button.value for button in one.buttons]
        ]
        self._location.client.answer(self._location.id, pause.id, answers, buttons=buttons)
