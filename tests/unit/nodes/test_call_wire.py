"""What nodes send each other arrives unchanged, whatever it contains."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.core import errors
from toolcrib.core.agents import AgentRules, NarrowedPermission, Phase, ToolPermission, TrustLevel
from toolcrib.core.callers import Agent, Caller, SessionMode, WorkspaceRole
from toolcrib.core.errors import ProviderError, ProviderErrorKind, ToolcribError, ToolFailed
from toolcrib.core.ids import AgentId, CallId, ChangeSetId, GrantId, RunId, SessionId, UserId, WorkspaceId
from toolcrib.core.packages import Package
from toolcrib.core.paused_calls import Grant, GrantRule
from toolcrib.core.tool_calls import Outcome, OutcomeState
from toolcrib.nodes import call_wire
from toolcrib.policy.authorization import AskedAbout, AuthorizationAction, DeniedFile, Explanation
from toolcrib.storage.database import Tenant

# With lone surrogates, which a client may send in JSON.
TEXTS = st.text(alphabet=st.characters(exclude_categories=()), max_size=20)
NAMES = st.text(alphabet="abcdefgh", min_size=1, max_size=8)
UUIDS = st.uuids()
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=10,
)
TIMES = st.datetimes(timezones=st.just(UTC))
GLOBS = st.lists(TEXTS, max_size=3).map(tuple)


def permissions() -> st.SearchStrategy[ToolPermission]:
    common: dict[str, Any] = {
        "allowed": st.booleans(),
        "paths": st.none() | GLOBS,
        "timeout": st.none() | st.floats(min_value=0.1, max_value=1e6),
        "hosts": GLOBS,
    }
    plain = st.builds(ToolPermission, **common)
    return plain | st.builds(NarrowedPermission, **common, parent_paths=st.lists(GLOBS, max_size=2).map(tuple))


TOOLS = st.dictionaries(NAMES, permissions(), max_size=3)


@st.composite
def rules(draw: st.DrawFn) -> AgentRules:
    made = AgentRules(
        trust=draw(st.sampled_from(TrustLevel)),
        max_trust=draw(st.none() | st.sampled_from(TrustLevel)),
        toolsets=draw(GLOBS),
        unprotected_paths=draw(GLOBS),
        prompt=draw(TEXTS),
        run_timeout=draw(st.none() | st.floats(min_value=0.1)),
        max_cost=draw(st.none() | st.floats(min_value=0.1, max_value=1e9)),
    )
    # As a child run's permissions are narrowed: without validation.
    phases = draw(st.lists(st.builds(Phase.model_construct, name=NAMES, tool_permissions=TOOLS), max_size=2))
    return made.model_copy(update={"tool_permissions": draw(st.none() | TOOLS), "phases": tuple(phases)})


GRANTS = st.builds(
    Grant,
    UUIDS.map(GrantId),
    st.builds(
        GrantRule,
        tools=GLOBS,
        paths=st.none() | GLOBS,
        commands=st.none() | GLOBS,
        hosts=st.none() | GLOBS,
        arguments=st.none() | st.dictionaries(TEXTS, TEXTS, max_size=2),
        access=st.none() | GLOBS,
    ),
    st.none() | UUIDS.map(SessionId),
)
AGENTS = st.builds(
    Agent,
    id=UUIDS.map(AgentId),
    name=TEXTS,
    rules=rules(),
    grants=st.lists(GRANTS, max_size=2).map(tuple),
    max_trust=st.none() | st.sampled_from(TrustLevel),
    phase=st.none() | NAMES,
    is_read_only=st.booleans(),
    directory=TEXTS,
)
CALLERS = st.builds(
    Caller,
    workspace_id=UUIDS.map(WorkspaceId),
    user_id=UUIDS.map(UserId),
    agent=st.none() | AGENTS,
    session_id=st.none() | UUIDS.map(SessionId),
    run_id=st.none() | UUIDS.map(RunId),
    call_id=UUIDS.map(CallId),
    run_epoch=st.none() | st.integers(0),
    token_version=st.none() | st.integers(0),
    via=NAMES,
    mode=st.sampled_from(SessionMode),
)


def over_the_wire(value: Any) -> Any:
    return call_wire.from_bytes(call_wire.to_bytes(value))


@given(CALLERS)
def test_caller_arrives_unchanged(caller: Caller) -> None:
    arrived = call_wire.caller_from_json(over_the_wire(call_wire.caller_to_json(caller)))

    assert arrived == caller
    if caller.agent is not None and caller.agent.rules.tool_permissions is not None:
        assert arrived.agent is not None
        sent, found = caller.agent.rules.tool_permissions, arrived.agent.rules.tool_permissions
        assert found is not None
        assert {name: type(one) for name, one in found.items()} == {name: type(one) for name, one in sent.items()}


@given(VALUES)
def test_arguments_arrive_unchanged(arguments: Any) -> None:
    assert over_the_wire(arguments) == arguments


METADATA = st.dictionaries(
    NAMES, VALUES | UUIDS | TIMES | st.dictionaries(NAMES, UUIDS | st.integers(), max_size=2), max_size=4
)


@given(UUIDS.map(CallId), st.sampled_from(OutcomeState), VALUES, st.none() | UUIDS.map(ChangeSetId), METADATA)
def test_outcome_arrives_unchanged(
    call_id: CallId, state: OutcomeState, result: Any, change_set_id: ChangeSetId | None, metadata: dict[str, Any]
) -> None:
    outcome = Outcome(call_id, state, result, None, change_set_id, metadata)

    assert call_wire.outcome_from_json(over_the_wire(call_wire.outcome_to_json(outcome))) == outcome


@given(
    st.builds(
        Explanation,
        tool=TEXTS,
        agent=st.none() | TEXTS,
        action=st.sampled_from(AuthorizationAction),
        rule=TEXTS,
        reason=TEXTS,
        required_role=st.sampled_from(WorkspaceRole),
        rules_checked=GLOBS,
        denied_files=st.lists(st.builds(DeniedFile, TEXTS, TEXTS, TEXTS), max_size=2).map(tuple),
        asks_about=st.none() | st.sampled_from(AskedAbout),
    )
)
def test_explanation_arrives_unchanged(explanation: Explanation) -> None:
    sent = over_the_wire(call_wire.explanation_to_json(explanation))

    assert call_wire.explanation_from_json(sent) == explanation


@given(
    st.builds(
        Package,
        name=NAMES,
        version=TEXTS,
        sha256=st.binary(min_size=32, max_size=32),
        files=st.integers(0),
        size=st.integers(0),
        agents=GLOBS,
        has_workflow=st.booleans(),
        installed_by=UUIDS.map(UserId),
        installed_at=TIMES,
    )
)
def test_package_arrives_unchanged(package: Package) -> None:
    assert call_wire.package_from_json(over_the_wire(call_wire.package_to_json(package))) == package


@given(UUIDS.map(WorkspaceId), st.none() | UUIDS.map(UserId), st.none() | st.integers(0), st.none() | UUIDS)
def test_tenant_arrives_unchanged(
    workspace_id: WorkspaceId, user_id: UserId | None, token_version: int | None, agent_id: UUID | None
) -> None:
    tenant = Tenant(workspace_id, user_id, token_version, agent_id)

    assert call_wire.tenant_from_json(over_the_wire(call_wire.tenant_to_json(tenant))) == tenant


def every_error() -> list[ToolcribError]:
    """One of each type, with everything that it can say."""
    made: list[ToolcribError] = []
    for kind in vars(errors).values():
        if not (isinstance(kind, type) and issubclass(kind, ToolcribError)):
            continue
        if kind is ProviderError:
            kinds = ProviderErrorKind.RATE_LIMIT
            made.append(ProviderError(429, "busy", kind=kinds, remedy="Wait.", retry_after=1.5))
        elif kind is errors.BadArguments:
            made.append(errors.BadArguments({f"field{number}": "wrong" for number in range(30)}))
        elif kind is errors.Quarantined:
            made.append(errors.Quarantined("Permission denied", retry_after=12.5))
        else:
            made.append(kind("What happened, and what to do. \ud800", fields={"name": "expected a name"}))
    for error in made:
        if isinstance(error, errors.BaseChanged):
            error.drifted = error.unlike_shown = True
        if isinstance(error, errors.InvalidTransition):
            error.allowed = ("plan", "review")
        if isinstance(error, errors.HomeMoved):
            error.has_begun = True
    return made


@pytest.mark.parametrize("error", every_error(), ids=lambda error: type(error).__name__)
def test_error_arrives_with_its_type_and_facts(error: ToolcribError) -> None:
    arrived = call_wire.error_from_json(over_the_wire(call_wire.error_to_json(error)))

    assert type(arrived) is type(error)
    assert (arrived.code, str(arrived)) == (error.code, str(error))
    assert vars(arrived) == vars(error)


def test_error_of_a_tool_keeps_its_code() -> None:
    class OwnError(ToolFailed):
        code = "TIMED_OUT"

    arrived = call_wire.error_from_json(over_the_wire(call_wire.error_to_json(OwnError("late"))))

    assert (type(arrived), arrived.code, arrived.message) == (ToolFailed, "TIMED_OUT", "late")


def test_result_that_is_not_json_arrives_as_the_api_would_encode_it() -> None:
    id_, time = UUID(int=1), datetime(2026, 1, 2, tzinfo=UTC)

    arrived = over_the_wire({"id": id_, "time": time, "tuple": (1, 2)})

    assert arrived == {"id": str(id_), "time": "2026-01-02T00:00:00Z", "tuple": [1, 2]}
