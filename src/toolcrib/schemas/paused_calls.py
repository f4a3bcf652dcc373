"""Paused calls on the wire: approvals and questions, what people send, and grants."""

from dataclasses import fields
from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import Field, TypeAdapter

from toolcrib.core.approval_text import ShownLine, approval_lines
from toolcrib.core.change_sets import ChangeKind
from toolcrib.core.files import EntryKind
from toolcrib.core.paused_calls import (
    ApprovalDecision,
    FileEdit,
    GrantRule,
    GrantScope,
    PausedCall,
    PauseState,
    Resolution,
)
from toolcrib.schemas.schema_base import InModel, OutModel, Page


class PauseOut(OutModel):
    """A call that waits or waited for a person."""

    id: UUID
    call_id: UUID
    session_id: UUID | None
    run_id: UUID | None
    agent_id: UUID | None
    agent_name: str | None
    tool: str
    state: PauseState
    decided_by: UUID | None = Field(description="Who decided or answered.")
    decided_by_name: str | None
    decided_at: datetime | None
    created_at: datetime
    expires_at: datetime


class GrantRuleOut(OutModel):
    """What a grant covers: calls of these tools that are within everything else that is given."""

    tools: list[str]
    paths: list[str] | None = Field(default=None, description="Globs. Every path that the call touches must match.")
    commands: list[str] | None = Field(
        default=None,
        description="Exact commands, and patterns such as `git diff *`: a prefix of the arguments, not of the text.",
    )
    hosts: list[str] | None = Field(
        default=None,
        description="What a command may contact. Without `commands`, any command may, but it needs approval as before.",
    )
    arguments: dict[str, str] | None = Field(default=None, description="Globs by argument, for tools of MCP servers.")
    access: list[str] | None = Field(
        default=None,
        description="What the MCP server was given, as in `effects`. What it is given later is not covered.",
    )


class FileSideOut(OutModel):
    """A file before or after the change."""

    sha256: str | None
    size: int
    mode: str


class PreviewChangeOut(OutModel):
    """A change to a file. `omitted` stands for `count` other files. Unknown or too large values are absent."""

    path: str | None
    change: ChangeKind | Literal["omitted"]
    kind: EntryKind | None = None
    from_: str | None = Field(default=None, alias="from")
    target: str | None = Field(default=None, description="The target of a symbolic link.")
    was_kind: EntryKind | None = Field(default=None, description="What it was before, if that is something else.")
    was_target: str | None = Field(default=None, description="The target that a link had before.")
    before: FileSideOut | None = None
    after: FileSideOut | None = None
    added: int | None = None
    removed: int | None = None
    diff: str | None = Field(default=None, description="Unified diff.")
    no_diff: Literal["binary", "large", "secret", "unread", "costly", "failed"] | None = Field(
        default=None,
        description="Why changed content has no diff. `large` and `unread`: `GET …/changes` has it while the call is "
        "pending. `costly`: comparing takes too long. `failed`: the server failed to compare it.",
    )
    number: int | None = Field(default=None, description="Which change of the call it is, on a page of changes.")
    next_line: int | None = Field(
        default=None, description="On a page of changes: where its next lines begin, if not all are here."
    )
    diff_omitted: bool | None = Field(
        default=None, description="The diff is omitted because it is too long for a list."
    )
    count: int | None = None


class EffectsOut(OutModel):
    """What a call would read, write, run and contact."""

    reads: list[str]
    writes: list[str]
    runs: str | None
    contacts: list[str]
    access: list[str] | None = Field(
        default=None,
        description="What the MCP server was given: `secret:NAME`, `workspace:read`, `workspace:write`. `server:HASH` "
        "says which server it is; show it to nobody.",
    )
    protected: list[str] | None = Field(default=None, description="Protected paths. Only a person can approve them.")
    ignored_folders: list[str] | None = Field(
        default=None,
        description="Ignored folders that existed before. After approval, later changes inside them are not asked "
        "about in this session.",
    )
    output: Any = Field(default=None, description="Output of the command, if its effect needs approval.")


class FileEditOut(OutModel):
    """What the person who approved the call changed in a file before."""

    path: str
    proposed_sha256: str | None = Field(description="SHA-256 of what the call proposed.")
    sha256: str | None
    added: int | None
    removed: int | None
    diff: str | None = Field(description="From what the call proposed to what was approved; null if it is too long.")


class ApprovalOut(PauseOut):
    """A call that needs a person's approval, with what it would do."""

    kind: Literal["approval"] = "approval"
    input: dict[str, Any] | str = Field(description="The arguments. Truncated only if `changes` show the effect.")
    arguments_sha256: str = Field(description="SHA-256 of the full arguments. Send it with the decision.")
    changes: list[PreviewChangeOut] = Field(description="The changes to files, with diffs where available.")
    effects: EffectsOut
    rule: str = Field(description="The rule that requires approval.")
    reason: str
    isolation: str | None
    suggested_rule: GrantRuleOut = Field(description="A rule that allows similar calls.")
    other_rules: list[GrantRuleOut] = Field(
        default=[], description="Narrower and wider rules. A person can edit any of them."
    )
    grant_scope: GrantScope | None
    rejection_reason: str | None
    replaces: UUID | None = Field(description="The stale approval that this one replaces.")
    edits: list[FileEditOut] = Field(
        default=[], description="What the person changed before approving. `changes` are with these edits."
    )
    text: str | None = Field(
        default=None,
        description="The call and its effect as text for a person: the lines that every client shows, with deceptive "
        "characters escaped. Absent in lists.",
    )

    @property
    def lines(self) -> list[ShownLine]:
        """The call and its effect as every client shows them."""
        return approval_lines(
            agent=self.agent_name,
            tool=self.tool,
            reason=self.reason,
            isolation=self.isolation,
            is_renewed=self.replaces is not None,
            arguments=self.input,
            effects=self.effects.model_dump(),
            changes=[change.model_dump(by_alias=True) for change in self.changes],
        )

    @property
    def is_for_once(self) -> bool:
        """Whether it can only be approved once: it writes a protected path or a link out of the workspace."""
        return self.rule in ("protected-name", "outward-link")

    @property
    def diff(self) -> str:
        """The diffs of all changes."""
        return "\n".join(change.diff for change in self.changes if change.diff)


class ButtonOut(OutModel):
    label: str
    value: str


class QuestionOut(OutModel):
    name: str
    question: str
    schema_: dict[str, Any] = Field(alias="schema", description="JSON Schema of the answer.")
    buttons: list[ButtonOut]


class QuestionPauseOut(PauseOut):
    """A call that asks a person something, with the answers once there are some."""

    kind: Literal["question"] = "question"
    questions: list[QuestionOut] = Field(description="One to four questions.")
    answers: dict[str, Any] | None
    answered_with_button: list[str] = Field(description="Names of the questions answered with a button.")


PausedCallOut = Annotated[ApprovalOut | QuestionPauseOut, Field(discriminator="kind")]


class PausedCallPage(Page[PausedCallOut]):
    """One page of paused calls, and the cursor of the next one; null at the end."""


_PAUSED_CALL: TypeAdapter[ApprovalOut | QuestionPauseOut] = TypeAdapter(PausedCallOut)


def paused_call_out(pause: PausedCall) -> ApprovalOut | QuestionPauseOut:
    """Return the wire form of a paused call in a list."""
    parts = (pause, pause.request, pause.resolution or Resolution())
    facts = {field.name: getattr(part, field.name) for part in parts for field in fields(part)}
    return parse_paused_call(facts | {"kind": pause.kind})


def whole_paused_call_out(pause: PausedCall) -> ApprovalOut | QuestionPauseOut:
    """Return the wire form of one paused call, which also has the text that a person reads."""
    found = paused_call_out(pause)
    if isinstance(found, QuestionPauseOut):
        return found
    return found.model_copy(update={"text": "\n".join(line.text for line in found.lines)})


def parse_paused_call(response: Any) -> ApprovalOut | QuestionPauseOut:
    """Return the paused call that a server sent."""
    return _PAUSED_CALL.validate_python(response)


class GrantRuleIn(InModel):
    """What a grant covers: calls of these tools that are within everything else that is given."""

    tools: tuple[Annotated[str, Field(max_length=200)], ...] = Field(min_length=1, max_length=50, examples=[["write"]])
    paths: tuple[str, ...] | None = Field(default=None, max_length=1_000, examples=[["docs/**"]])
    commands: tuple[str, ...] | None = Field(default=None, max_length=100)
    hosts: tuple[str, ...] | None = Field(default=None, max_length=100)
    arguments: dict[str, Annotated[str, Field(max_length=1_000)]] | None = Field(default=None, max_length=100)
    access: tuple[Annotated[str, Field(max_length=300)], ...] | None = Field(default=None, max_length=100)

    @property
    def rule(self) -> GrantRule:
        """Return the rule."""
        return GrantRule(self.tools, self.paths, self.commands, self.hosts, self.arguments, self.access)


class FileEditIn(InModel):
    """The content that a file of the change set gets instead of the proposed one."""

    path: str = Field(max_length=5_000, examples=["/a.txt"], description="As in `changes`.")
    content: str = Field(max_length=200_000, description="The whole text, at most 200,000 bytes.")

    @property
    def edit(self) -> FileEdit:
        return FileEdit(self.path, self.content)


class FileEditsIn(InModel):
    """A person's edits of a change set that waits for an approval."""

    edits: list[FileEditIn] = Field(default=[], max_length=100)


class EditPreviewOut(OutModel):
    """What would be committed with the edits. Nothing is stored."""

    changes: list[PreviewChangeOut]
    change_set_sha256: str = Field(description="Send it with the decision and the same edits.")


class ChangesPageOut(OutModel):
    """Some changes of a pending call, with all their lines."""

    changes: list[PreviewChangeOut]
    next: int | None = Field(description="The `first` of the next page. Null: no more.")


class ProposedFileOut(OutModel):
    """The content that a call would give to a file."""

    path: str
    content: str


class ApprovalDecisionIn(InModel):
    """A person's decision. A scope beyond `once` stores `rule`, which must be given."""

    approved: bool
    scope: GrantScope = GrantScope.ONCE
    reason: str | None = Field(default=None, max_length=2_000)
    rule: GrantRuleIn | None = None
    arguments_sha256: str = Field(
        pattern="^[0-9a-f]{64}$",
        description="The hash in the approval that the person saw. A decision on other arguments is refused.",
    )
    edits: list[FileEditIn] = Field(
        default=[],
        max_length=100,
        description="Contents that are committed instead of the proposed ones. Only with the scope `once`.",
    )
    change_set_sha256: str | None = Field(
        default=None,
        pattern="^[0-9a-f]{64}$",
        description="The hash from the preview of the edits. Required with edits; another change set is refused.",
    )

    @property
    def decision(self) -> ApprovalDecision:
        """Return the decision."""
        rule = self.rule.rule if self.rule else None
        return ApprovalDecision(
            self.approved,
            self.scope,
            self.reason,
            rule,
            self.arguments_sha256,
            tuple(one.edit for one in self.edits),
            self.change_set_sha256,
        )


def decision_on(
    approval: ApprovalOut, *, approved: bool, scope: str, reason: str | None, rule: GrantRuleOut | None = None
) -> ApprovalDecisionIn:
    """Return a decision on exactly what the approval shows; beyond ``once`` with a rule, by default the suggested."""
    extends = approved and scope != GrantScope.ONCE
    return ApprovalDecisionIn(
        approved=approved,
        scope=GrantScope(scope),
        reason=reason,
        rule=GrantRuleIn.model_validate((rule or approval.suggested_rule).model_dump()) if extends else None,
        arguments_sha256=approval.arguments_sha256,
    )


class AnswersIn(InModel):
    """One answer per question, by name."""

    answers: dict[str, Any] = Field(examples=[{"framework": "Vitest"}])
    answered_with_button: list[str] = Field(
        default=[], max_length=4, description="Names of the questions answered with a button."
    )


class GrantOut(OutModel):
    """A saved approval: a rule that a decision stored."""

    id: UUID
    agent_id: UUID
    session_id: UUID | None
    rule: GrantRuleOut
    pause_id: UUID
    created_by: UUID
    created_at: datetime
