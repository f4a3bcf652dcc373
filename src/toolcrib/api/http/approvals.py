"""Approvals of a workspace: lists and decides pending calls, and lists and revokes grants."""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import Field

from toolcrib.api.api_services import Injected
from toolcrib.api.auth.principal import APerson, Authenticated, tenant_for
from toolcrib.api.http_errors import examples
from toolcrib.api.request_guard import StrictRoute
from toolcrib.api.schema_base import InModel, OutModel, Page
from toolcrib.core.approvals import ApprovalDecision, ApprovalState, GrantRule, GrantScope
from toolcrib.core.change_sets import ChangeKind
from toolcrib.core.files import EntryKind
from toolcrib.core.ids import ApprovalId, CallId, GrantId, SessionId

router = APIRouter(prefix="/workspaces/{workspace_id}", tags=["approvals"], route_class=StrictRoute)


class GrantRuleIn(InModel):
    """What a grant covers: a tool and, if given, only these paths (globs) or exactly these commands."""

    tool: str = Field(max_length=200, examples=["write"])
    paths: list[str] | None = Field(default=None, max_length=1_000, examples=[["docs/**"]])
    commands: list[str] | None = Field(default=None, max_length=100)

    @property
    def rule(self) -> GrantRule:
        """Return the rule."""
        paths = None if self.paths is None else tuple(self.paths)
        return GrantRule(self.tool, paths, None if self.commands is None else tuple(self.commands))


class GrantRuleOut(OutModel):
    tool: str
    paths: list[str] | None
    commands: list[str] | None


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
    before: FileSideOut | None = None
    after: FileSideOut | None = None
    added: int | None = None
    removed: int | None = None
    diff: str | None = Field(default=None, description="Unified diff.")
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
    protected: list[str] | None = Field(default=None, description="Protected paths. Only a person can approve them.")
    output: Any = Field(default=None, description="Output of the command, if its effect needs approval.")


class ApprovalOut(OutModel):
    """A call that waits or waited for a decision, with what it would do."""

    id: UUID
    call_id: UUID
    session_id: UUID | None
    run_id: UUID | None
    agent_id: UUID | None
    agent_name: str | None
    tool: str
    shown: dict[str, Any] | str = Field(description="The arguments. Long values are truncated.")
    arguments_sha256: str = Field(description="SHA-256 of the full arguments. Send it with the decision.")
    changes: list[PreviewChangeOut] = Field(description="The changes to files, with diffs where available.")
    effects: EffectsOut
    rule: str = Field(description="The rule that requires approval.")
    reason: str
    isolation: str | None
    offered: GrantRuleOut = Field(description="The narrowest rule that allows similar calls.")
    state: ApprovalState
    scope: GrantScope | None
    decided_by: UUID | None
    decided_by_name: str | None
    decided_at: datetime | None
    denial: str | None
    replaces: UUID | None = Field(description="The stale approval that this one replaces.")
    created_at: datetime
    expires_at: datetime


class ApprovalDecisionIn(InModel):
    """A person's decision. A scope beyond `once` stores `rule`, which must be given."""

    approved: bool
    scope: GrantScope = GrantScope.ONCE
    reason: str | None = Field(default=None, max_length=2_000)
    rule: GrantRuleIn | None = None
    arguments_sha256: str | None = Field(default=None, pattern="^[0-9a-f]{64}$")


@router.get(
    "/approvals",
    response_model_exclude_unset=True,
    responses=examples("INVALID_TOKEN", "FORBIDDEN"),
    name="list_approvals",
)
async def list_all(
    workspace_id: UUID,
    principal: Authenticated,
    services: Injected,
    session_id: UUID | None = None,
    all: Annotated[bool, Query(description="Include approvals that are no longer pending.")] = False,  # noqa: FBT002 - a query parameter, passed by name
    after: UUID | None = None,
    limit: int = Query(default=100, ge=1, le=500),
) -> Page[ApprovalOut]:
    """List the pending approvals, oldest first. An agent sees its own."""
    found = await services.approvals.page(
        tenant_for(principal, workspace_id),
        session_id=None if session_id is None else SessionId(session_id),
        only_open=not all,
        after=None if after is None else ApprovalId(after),
        limit=limit,
    )
    items = [ApprovalOut.model_validate(approval) for approval in found]
    return Page(items=items, next=str(items[-1].id) if len(items) == limit else None)


@router.get(
    "/approvals/{approval_id}",
    response_model_exclude_unset=True,
    responses=examples("INVALID_TOKEN", "FORBIDDEN", "NOT_FOUND"),
    name="get_approval",
)
async def get(workspace_id: UUID, approval_id: UUID, principal: Authenticated, services: Injected) -> ApprovalOut:
    """Return one approval in any state."""
    found = await services.approvals.get(tenant_for(principal, workspace_id), ApprovalId(approval_id))
    return ApprovalOut.model_validate(found)


@router.post(
    "/approvals/{approval_id}/decision",
    response_model_exclude_unset=True,
    responses=examples("VALIDATION_ERROR", "INVALID_TOKEN", "FORBIDDEN", "NOT_FOUND", "CONFLICT"),
    name="decide_approval",
)
async def decide(
    workspace_id: UUID, approval_id: UUID, given: ApprovalDecisionIn, principal: APerson, services: Injected
) -> ApprovalOut:
    """Approve or reject a call. Members only; owners only for the scope `always`. The first decision counts."""
    decision = ApprovalDecision(
        approved=given.approved,
        scope=given.scope,
        reason=given.reason,
        rule=given.rule.rule if given.rule else None,
        arguments_sha256=given.arguments_sha256,
    )
    found = await services.approvals.decide(
        tenant_for(principal, workspace_id), ApprovalId(approval_id), decision, via="rest"
    )
    return ApprovalOut.model_validate(found)


@router.post(
    "/calls/{call_id}/cancel",
    response_model_exclude_unset=True,
    responses=examples("INVALID_TOKEN", "FORBIDDEN", "NOT_FOUND", "CONFLICT"),
    name="cancel_call",
)
async def cancel_call(workspace_id: UUID, call_id: UUID, principal: Authenticated, services: Injected) -> ApprovalOut:
    """Cancel a call that waits for a decision. An agent can cancel its own calls."""
    found = await services.approvals.cancel(tenant_for(principal, workspace_id), CallId(call_id))
    return ApprovalOut.model_validate(found)


class GrantOut(OutModel):
    """A saved approval: a rule that a decision stored."""

    id: UUID
    agent_id: UUID
    session_id: UUID | None
    rule: GrantRuleOut
    approval_id: UUID
    created_by: UUID
    created_at: datetime


@router.get("/grants", responses=examples("INVALID_TOKEN", "FORBIDDEN"), name="list_grants")
async def list_grants(workspace_id: UUID, principal: APerson, services: Injected) -> Page[GrantOut]:
    """List the grants: what people approved beyond a single call and have not revoked."""
    found = await services.grants.list(tenant_for(principal, workspace_id))
    return Page(items=[GrantOut.model_validate(grant) for grant in found])


@router.delete(
    "/grants/{grant_id}",
    status_code=204,
    responses=examples("INVALID_TOKEN", "FORBIDDEN", "NOT_FOUND"),
    name="revoke_grant",
)
async def revoke(workspace_id: UUID, grant_id: UUID, principal: APerson, services: Injected) -> None:
    """Revoke a grant. From the agent's next call on, a person is asked again."""
    await services.grants.revoke(tenant_for(principal, workspace_id), GrantId(grant_id))
