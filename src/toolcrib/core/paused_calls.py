"""Paused calls: calls that wait for a person, who approves them or answers their questions; and grants.

An approval resumes the call. An answer ends it: the answers are its result.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from toolcrib.core.ids import AgentId, CallId, ChangeSetId, GrantId, PauseId, RunId, SessionId, UserId, WorkspaceId


class PauseKind(StrEnum):
    APPROVAL = "approval"
    QUESTION = "question"


class PauseState(StrEnum):
    """The state of a paused call.

    ``approved``, ``rejected`` and ``stale`` are for approvals only, ``answered`` for questions only. ``stale``: what
    was shown has changed, and another pause replaces this one. ``cancelled``: by the caller, by the end of its run, or
    because nobody is left to run it for.
    """

    PENDING = "pending"
    APPROVED = "approved"
    REJECTED = "rejected"
    STALE = "stale"
    ANSWERED = "answered"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


# A pause ends once. An approved call can become stale when it is applied, or be cancelled if its caller is gone. A
# stale one ends when it is asked again, or when that is not possible.
TRANSITIONS: Mapping[PauseState, frozenset[PauseState]] = {
    PauseState.PENDING: frozenset(PauseState) - {PauseState.PENDING},
    PauseState.APPROVED: frozenset({PauseState.STALE, PauseState.CANCELLED}),
    PauseState.STALE: frozenset({PauseState.CANCELLED}),
    **dict.fromkeys(
        (PauseState.REJECTED, PauseState.ANSWERED, PauseState.EXPIRED, PauseState.CANCELLED), frozenset[PauseState]()
    ),
}


class GrantScope(StrEnum):
    """How far an approval extends: this call, similar calls in this session, or similar calls always."""

    ONCE = "once"
    SESSION = "session"
    ALWAYS = "always"


@dataclass(frozen=True, slots=True)
class GrantRule:
    """What a grant covers: calls of these tools that are within everything else that is given.

    Attributes:
        paths: Globs. Every path that the call touches must match.
        commands: Exact commands, and patterns such as ``git diff *``. Every part of the command must match.
        hosts: What a command may contact. Without ``commands``, any command may, but it needs an approval as before.
            Of other tools, all hosts that the call contacts.
        arguments: Globs by argument's name, for tools outside the workspace. These arguments must be given and match.
        access: All that the call's MCP server was given (see ``Effects``). What it is given later is not covered.
    """

    tools: tuple[str, ...]
    paths: tuple[str, ...] | None = None
    commands: tuple[str, ...] | None = None
    hosts: tuple[str, ...] | None = None
    arguments: Mapping[str, str] | None = None
    access: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Grant:
    """A rule saved from a person's decision. Without a session it applies until it is revoked."""

    id: GrantId
    rule: GrantRule
    session_id: SessionId | None = None


@dataclass(frozen=True, slots=True)
class FileEdit:
    """The content that a person gives to a file of a proposed change set."""

    path: str
    content: str


@dataclass(frozen=True, slots=True)
class ApprovalDecision:
    """A person's decision.

    Attributes:
        rule: Required with a scope beyond this call. It is stored exactly as the person saw it.
        arguments_sha256: The hash of what the person saw, which must match what would run. Only a decision about one
            call over WebSocket may lack it: it names the call, whose arguments never change.
        edits: Contents that replace those of the proposed change set.
        change_set_sha256: The hash of the change set that the person saw, with the edits. Required with edits; if
            given, it must match what would be committed.
    """

    approved: bool
    scope: GrantScope = GrantScope.ONCE
    reason: str | None = None
    rule: GrantRule | None = None
    arguments_sha256: str | None = None
    edits: tuple[FileEdit, ...] = ()
    change_set_sha256: str | None = None


@dataclass(frozen=True, slots=True)
class AnswerButton:
    label: str
    value: str


@dataclass(frozen=True, slots=True)
class Question:
    """One of up to four questions asked at once. ``name`` is the answer's key; ``schema`` is JSON Schema."""

    name: str
    question: str
    schema: Mapping[str, Any]
    buttons: tuple[AnswerButton, ...] = ()


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """What a person is asked to approve.

    Attributes:
        input: The arguments for display. What runs is stored separately.
        changes: What happens to each file, where that is known.
        change_set_id: The proposed change set.
        suggested_rule: The grant that would cover similar calls.
        other_rules: Narrower and wider ones.
        replaces: The earlier pause of the same call that this one replaces.
    """

    input: Mapping[str, Any]
    arguments_sha256: str
    changes: Sequence[Mapping[str, Any]]
    change_set_id: ChangeSetId | None
    effects: Mapping[str, Any]
    rule: str
    reason: str
    isolation: str | None
    suggested_rule: GrantRule
    other_rules: tuple[GrantRule, ...] = ()
    replaces: PauseId | None = None

    kind = PauseKind.APPROVAL


@dataclass(frozen=True, slots=True)
class QuestionRequest:
    """The questions that a call asks a person."""

    questions: tuple[Question, ...]

    kind = PauseKind.QUESTION


@dataclass(frozen=True, slots=True)
class Resolution:
    """How a pause ended: by whom and when; the grant or the reason of a decision, or the answers.

    Attributes:
        answered_with_button: The names of the questions that were answered with a button.
        edits: What the person changed before approving, by file: the hashes, and the diff from what was proposed.
    """

    decided_by: UserId | None = None
    decided_by_name: str | None = None
    decided_via: str | None = None
    decided_at: datetime | None = None
    grant_scope: GrantScope | None = None
    rejection_reason: str | None = None
    answers: Mapping[str, Any] | None = None
    answered_with_button: tuple[str, ...] = ()
    edits: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, slots=True)
class PausedCall:
    """A call that waits, or waited, for a person. ``resolution`` is ``None`` while nobody has decided or answered."""

    id: PauseId
    workspace_id: WorkspaceId
    call_id: CallId
    session_id: SessionId | None
    run_id: RunId | None
    user_id: UserId
    agent_id: AgentId | None
    agent_name: str | None
    via: str
    tool: str
    request: ApprovalRequest | QuestionRequest
    state: PauseState
    resolution: Resolution | None
    created_at: datetime
    expires_at: datetime

    @property
    def kind(self) -> PauseKind:
        return self.request.kind

    @property
    def is_pending(self) -> bool:
        return self.state is PauseState.PENDING

    @property
    def is_for_a_worker(self) -> bool:
        """Whether it was decided and a worker resumes it: its run does not, or it must be asked again."""
        return self.state is PauseState.STALE or (self.state is PauseState.APPROVED and self.run_id is None)

    @property
    def approval(self) -> ApprovalRequest:
        """What a person is asked to approve."""
        assert isinstance(self.request, ApprovalRequest)
        return self.request

    @property
    def questions(self) -> tuple[Question, ...]:
        """What a person is asked to answer."""
        assert isinstance(self.request, QuestionRequest)
        return self.request.questions


@dataclass(frozen=True, slots=True)
class ApprovedCall:
    """A paused call that is to be executed, with exactly the arguments and the result that were approved."""

    pause: PausedCall
    arguments: str
    planned_result: Any
    # Another process, or this one before a crash, had started to execute it.
    started_before: bool = False
    # How many processes have started to execute it, including this one.
    attempts: int = 0

    @property
    def approval(self) -> ApprovalRequest:
        """What was approved."""
        return self.pause.approval

    @property
    def approved_by(self) -> UserId | None:
        """Who approved it; nobody if it became stale before."""
        return self.pause.resolution.decided_by if self.pause.resolution else None

    @property
    def edits(self) -> Sequence[Mapping[str, Any]]:
        """What the person changed before approving."""
        return self.pause.resolution.edits if self.pause.resolution else ()

    @property
    def is_stale(self) -> bool:
        """Whether a person must be asked again."""
        return self.pause.state is PauseState.STALE
