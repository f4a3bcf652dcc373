"""The stages of one call, each a frozen value, and what a person is shown of them.

``CallRequest`` → ``AuthorizedCall`` → ``ToolRun`` → ``Outcome``.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any

from toolcrib.core.agents import ApprovalPoint
from toolcrib.core.callers import Caller
from toolcrib.core.change_sets import ChangeSet
from toolcrib.core.errors import ToolcribError
from toolcrib.core.paths import WorkspacePath
from toolcrib.core.paused_calls import ApprovalRequest, ApprovedCall, Question
from toolcrib.core.tool_calls import Effects, ToolCall
from toolcrib.policy.authorization import PROTECTED_NAME, Authorization
from toolcrib.policy.permissions import permission_for
from toolcrib.policy.protected_paths import OUTWARD_LINK
from toolcrib.policy.truncation import truncate
from toolcrib.tools.context import ToolReport
from toolcrib.tools.tool import Tool
from toolcrib.workspace.changes.change_preview import UntrackedHash


@dataclass(frozen=True, slots=True)
class CallRequest:
    """A call as it arrives.

    Attributes:
        tool: The tool with this name in the caller's workspace, or ``None``.
        approved: The approval by which a paused call resumes.
        emit: Receives the output while the call runs, instead of the subscribers of its session.
        authorization: The decision of the policy, once there is one.
        continues: The call has started before and waited for a child run.
    """

    call: ToolCall
    caller: Caller
    tool: Tool | None = None
    approved: ApprovedCall | None = None
    emit: Callable[[str], None] | None = None
    authorization: Authorization | None = None
    continues: bool = False
    received_at: datetime = field(default_factory=partial(datetime.now, UTC))
    received_ns: int = field(default_factory=time.perf_counter_ns)

    @property
    def is_repeatable(self) -> bool:
        """Whether a retry is safe if it is unknown whether the call took effect."""
        return self.tool is None or self.tool.idempotent

    def encode_error(self, error: ToolcribError) -> Any:
        """Return the result that says this error in the tool's dialect; ``None`` if errors stay errors in it."""
        return self.tool.encode_error(error) if self.tool is not None and self.tool.encode_error else None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizedCall(CallRequest):
    """A parsed call that the policy allows, or about which a person must be asked.

    Attributes:
        effects: Its effects, with the hosts that its agent is granted.
    """

    tool: Tool
    authorization: Authorization
    arguments: Any
    effects: Effects

    @property
    def is_repeatable(self) -> bool:
        """Whether a retry is safe if it is unknown whether the call took effect. Not if a command may contact hosts."""
        return self.tool.idempotent and not (self.effects.command and self.effects.hosts)

    @property
    def can_preview(self) -> bool:
        """Whether the whole effect is a change set that can be computed without applying it.

        For a command this means running it, so it applies only if the agent's owner wants to approve the effect, or if
        an effect that can be undone needs no approval.
        """
        if self.effects.hosts:
            return False
        if self.effects.command is None:
            return bool(self.effects.writes) or self.tool.drafts
        agent = self.caller.agent
        permission = permission_for(agent.rules, self.tool.name) if agent else None
        on_effect = permission is not None and permission.approve is ApprovalPoint.EFFECT
        return not self.tool.replannable and (on_effect or self.authorization.undoable_only)

    @property
    def may_reveal(self) -> bool:
        """Whether the caller may learn what a preview shows: that the call would fail, or would change nothing.

        This may reveal the contents of a file, so a supervised agent learns it only with permission.
        """
        return not self.authorization.is_supervised or (self.approved is not None and not self.approved.is_stale)


@dataclass(frozen=True, slots=True)
class ToolRun:
    """What a tool's function returned and would change. Nothing is committed.

    Attributes:
        change_set: ``None`` if the call changes nothing.
        questions: What the tool asks a person. The call then waits for the answers.
        untracked: Hashes of contents that the file history does not keep, so that a person can be shown them.
        ignored_folders: Ignored folders with changes, about which nobody was asked in this session. An approval covers
            later changes inside them.
    """

    result: Any
    change_set: ChangeSet | None
    report: ToolReport
    questions: tuple[Question, ...] = ()
    untracked: UntrackedHash | None = None
    ignored_folders: tuple[WorkspacePath, ...] = ()


_NAMED = 10
# The list of changes has the whole target.
_LONGEST_TARGET = 300
_OUTPUT_PREVIEW_BYTES = 10_000


def paths_shown_to_person(change_set: ChangeSet, approval: ApprovalRequest) -> frozenset[WorkspacePath]:
    """Return the protected paths of a proposed change set that the person was shown."""
    seen = frozenset(approval.effects.get("protected", ()))
    return frozenset(path for path in change_set.paths if path.display in seen)


def pause_reason(authorization: Authorization, run: ToolRun | None) -> tuple[str, str]:
    """Return the rule that requires a decision and the reason. Protected paths and links that lead out come first."""
    if run is None or not run.report.needs_approval:
        return authorization.rule, authorization.reason + _covers_later(run)
    sentences = []
    if names := _protected_names(run):
        sentences.append(f"It would write {_first_of(names)}: protected paths, which contain secrets or run as code. ")
    if links := [f"{path.display} → {_shortened(to)!r}" for path, to in run.report.outward_links.items()]:
        sentences.append(
            f"It would make {_first_of(links)}: links out of the workspace. What anyone writes there later changes "
            "what the link leads to. "
        )
    return (PROTECTED_NAME if names else OUTWARD_LINK), f"{''.join(sentences)}Only a person can approve that."


def _covers_later(run: ToolRun | None) -> str:
    """Say what an approval of the run covers besides it."""
    if run is None or not run.ignored_folders:
        return ""
    return (
        " It changes ignored folders that existed before: "
        f"{_first_of([path.display for path in run.ignored_folders])}. "
        "If you approve it, later changes inside them are not asked about in this session."
    )


def _first_of(names: Sequence[str]) -> str:
    others = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{others}"


def _shortened(target: str) -> str:
    return target if len(target) <= _LONGEST_TARGET else f"{target[:_LONGEST_TARGET]}…"


def effects_to_row(effects: Effects, run: ToolRun | None) -> dict[str, Any]:
    """Serialize the effects for the row of the pause. ``run`` is the previewed run, if there was one."""
    writes = effects.writes
    if not writes and run is not None and run.change_set is not None and effects.command is None:
        # For a tool that drafts, only the preview knows the paths.
        writes = run.change_set.paths
    row = {
        "reads": [path.display for path in (*effects.reads, *effects.reads_batch)],
        "writes": [path.display for path in writes],
        "runs": effects.command,
        "contacts": list(effects.hosts),
    }
    if effects.access:
        row["access"] = list(effects.access)
    if run is not None and run.report.protected:
        row["protected"] = _protected_names(run)
    if run is not None and run.ignored_folders:
        row["ignored_folders"] = [path.display for path in run.ignored_folders]
    if run is not None and effects.command is not None:
        output = run.result.get("output") if isinstance(run.result, Mapping) else run.result
        row["output"] = truncate(output, limit_bytes=_OUTPUT_PREVIEW_BYTES).value
    return row


def _protected_names(run: ToolRun) -> list[str]:
    return [path.display for path in dict.fromkeys(run.report.protected)]
