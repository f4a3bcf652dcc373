"""Encodes what nodes send each other: callers, calls, outcomes, explanations, packages and errors.

Plain JSON by explicit code, because nothing may get lost: a permission that was narrowed for a child run must stay
narrow, and an error keeps its type. Both nodes run the same version, or one release apart: unknown fields are errors.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from pydantic_core import to_jsonable_python

from toolcrib.core import errors
from toolcrib.core.agents import AgentRules, NarrowedPermission, Phase, ToolPermission, TrustLevel
from toolcrib.core.callers import Agent, Caller, SessionMode, WorkspaceRole
from toolcrib.core.errors import ProviderErrorKind, ToolcribError
from toolcrib.core.ids import AgentId, CallId, ChangeSetId, GrantId, RunId, SessionId, UserId, WorkspaceId
from toolcrib.core.packages import Package
from toolcrib.core.paused_calls import Grant, GrantRule
from toolcrib.core.tool_calls import Outcome, OutcomeState
from toolcrib.policy.authorization import AskedAbout, AuthorizationAction, DeniedFile, Explanation
from toolcrib.storage.database import Tenant


def to_bytes(value: Any) -> bytes:
    """Encode JSON. Lone surrogates, which a client may send in an argument, are kept."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_jsonable)
    return text.encode("utf-8", "surrogatepass")


def from_bytes(body: bytes) -> Any:
    """Parse what ``to_bytes`` encoded."""
    return json.loads(body.decode("utf-8", "surrogatepass"))


def _jsonable(value: Any) -> Any:
    """Encode a value of a tool's result as the HTTP API would."""
    return to_jsonable_python(value, fallback=str)


# Callers


def caller_to_json(caller: Caller) -> dict[str, Any]:
    """Encode a caller."""
    return {
        "workspace_id": str(caller.workspace_id),
        "user_id": str(caller.user_id),
        "agent": None if caller.agent is None else _agent_to_json(caller.agent),
        "session_id": _text(caller.session_id),
        "run_id": _text(caller.run_id),
        "call_id": str(caller.call_id),
        "run_epoch": caller.run_epoch,
        "token_version": caller.token_version,
        "via": caller.via,
        "mode": caller.mode,
    }


def caller_from_json(given: Mapping[str, Any]) -> Caller:
    """Decode a caller."""
    session_id, run_id, agent = _uuid(given["session_id"]), _uuid(given["run_id"]), given["agent"]
    return Caller(
        workspace_id=WorkspaceId(UUID(given["workspace_id"])),
        user_id=UserId(UUID(given["user_id"])),
        agent=None if agent is None else _agent_from_json(agent),
        session_id=None if session_id is None else SessionId(session_id),
        run_id=None if run_id is None else RunId(run_id),
        call_id=CallId(UUID(given["call_id"])),
        run_epoch=given["run_epoch"],
        token_version=given["token_version"],
        via=given["via"],
        mode=SessionMode(given["mode"]),
    )


def tenant_to_json(tenant: Tenant) -> dict[str, Any]:
    """Encode a tenant."""
    return {
        "workspace_id": str(tenant.workspace_id),
        "user_id": _text(tenant.user_id),
        "token_version": tenant.token_version,
        "agent_id": _text(tenant.agent_id),
    }


def tenant_from_json(given: Mapping[str, Any]) -> Tenant:
    """Decode a tenant."""
    user_id = _uuid(given["user_id"])
    return Tenant(
        WorkspaceId(UUID(given["workspace_id"])),
        None if user_id is None else UserId(user_id),
        given["token_version"],
        _uuid(given["agent_id"]),
    )


def _agent_to_json(agent: Agent) -> dict[str, Any]:
    return {
        "id": str(agent.id),
        "name": agent.name,
        # As any: the permissions of a child run have one more field. As Python: JSON has no time without a limit.
        "rules": agent.rules.model_dump(mode="python", serialize_as_any=True),
        "grants": [
            {"id": str(grant.id), "rule": asdict(grant.rule), "session_id": _text(grant.session_id)}
            for grant in agent.grants
        ],
        "max_trust": agent.max_trust,
        "phase": agent.phase,
        "is_read_only": agent.is_read_only,
        "directory": agent.directory,
    }


def _agent_from_json(given: Mapping[str, Any]) -> Agent:
    return Agent(
        id=AgentId(UUID(given["id"])),
        name=given["name"],
        rules=_rules(given["rules"]),
        grants=tuple(_grant(one) for one in given["grants"]),
        max_trust=None if given["max_trust"] is None else TrustLevel(given["max_trust"]),
        phase=given["phase"],
        is_read_only=given["is_read_only"],
        directory=given["directory"],
    )


def _rules(given: Mapping[str, Any]) -> AgentRules:
    rest = {name: value for name, value in given.items() if name not in ("tool_permissions", "phases")}
    rules = AgentRules.model_validate(rest)
    permissions = given["tool_permissions"]
    phases = tuple(
        Phase.model_construct(name=phase["name"], tool_permissions=_permissions(phase["tool_permissions"]))
        for phase in given["phases"]
    )
    # Without validation, which would widen a narrowed permission to its declared type.
    return rules.model_copy(
        update={"tool_permissions": None if permissions is None else _permissions(permissions), "phases": phases}
    )


def _permissions(given: Mapping[str, Any]) -> dict[str, ToolPermission]:
    return {
        tool: (NarrowedPermission if "parent_paths" in one else ToolPermission).model_validate(one)
        for tool, one in given.items()
    }


def _grant(given: Mapping[str, Any]) -> Grant:
    rule, session_id = given["rule"], _uuid(given["session_id"])

    def names(field: str) -> tuple[str, ...] | None:
        return None if rule[field] is None else tuple(rule[field])

    return Grant(
        GrantId(UUID(given["id"])),
        GrantRule(
            tools=tuple(rule["tools"]),
            paths=names("paths"),
            commands=names("commands"),
            hosts=names("hosts"),
            arguments=rule["arguments"],
            access=names("access"),
        ),
        None if session_id is None else SessionId(session_id),
    )


# What a call ends with


def outcome_to_json(outcome: Outcome) -> dict[str, Any]:
    """Encode an outcome. A result that is no JSON value is encoded as the HTTP API would."""
    return {
        "call_id": str(outcome.call_id),
        "state": outcome.state,
        "result": outcome.result,
        "error": None if outcome.error is None else error_to_json(outcome.error),
        "change_set_id": _text(outcome.change_set_id),
        "metadata": _tagged(outcome.metadata),
    }


def outcome_from_json(given: Mapping[str, Any]) -> Outcome:
    """Decode an outcome."""
    change_set_id = _uuid(given["change_set_id"])
    return Outcome(
        CallId(UUID(given["call_id"])),
        OutcomeState(given["state"]),
        given["result"],
        None if given["error"] is None else error_from_json(given["error"]),
        None if change_set_id is None else ChangeSetId(change_set_id),
        _untagged(given["metadata"]),
    )


def explanation_to_json(explanation: Explanation) -> dict[str, Any]:
    """Encode an explanation."""
    return asdict(explanation)


def explanation_from_json(given: Mapping[str, Any]) -> Explanation:
    """Decode an explanation."""
    return Explanation(
        tool=given["tool"],
        agent=given["agent"],
        action=AuthorizationAction(given["action"]),
        rule=given["rule"],
        reason=given["reason"],
        required_role=WorkspaceRole(given["required_role"]),
        rules_checked=tuple(given["rules_checked"]),
        denied_files=tuple(DeniedFile(**one) for one in given["denied_files"]),
        asks_about=None if given["asks_about"] is None else AskedAbout(given["asks_about"]),
    )


def package_to_json(package: Package) -> dict[str, Any]:
    """Encode an installed package."""
    return {
        **{name: value for name, value in asdict(package).items() if name not in ("sha256", "installed_by")},
        "sha256": package.sha256.hex(),
        "installed_by": str(package.installed_by),
        "installed_at": package.installed_at.isoformat(),
    }


def package_from_json(given: Mapping[str, Any]) -> Package:
    """Decode an installed package."""
    return Package(
        name=given["name"],
        version=given["version"],
        sha256=bytes.fromhex(given["sha256"]),
        files=given["files"],
        size=given["size"],
        agents=tuple(given["agents"]),
        has_workflow=given["has_workflow"],
        installed_by=UserId(UUID(given["installed_by"])),
        installed_at=datetime.fromisoformat(given["installed_at"]),
    )


# Errors

_KINDS: Final = {
    name: kind for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, ToolcribError)
}
# What errors have besides their message and fields.
_FACTS: Final[Mapping[type[ToolcribError], tuple[str, ...]]] = {
    errors.BaseChanged: ("drifted", "unlike_shown"),
    errors.InvalidTransition: ("allowed",),
    errors.HomeMoved: ("has_begun",),
    errors.Quarantined: ("retry_after",),
    errors.ProviderError: ("status", "body", "kind", "retry_after"),
}


def error_to_json(error: ToolcribError) -> dict[str, Any]:
    """Encode an error. One of a type that only a tool knows becomes its nearest public type, with its code."""
    kind = next(kind for kind in type(error).__mro__ if _KINDS.get(kind.__name__) is kind)
    return {
        "type": kind.__name__,
        "code": error.code,
        "message": error.message,
        "fields": error.fields,
        "facts": {name: getattr(error, name) for name in _FACTS.get(kind, ())},
    }


def error_from_json(given: Mapping[str, Any]) -> ToolcribError:
    """Decode an error."""
    kind = _KINDS[given["type"]]
    error = kind.__new__(kind)
    # Not the type's own constructor: the message is complete already.
    ToolcribError.__init__(error, given["message"])
    error.fields = given["fields"]
    if given["code"] != kind.code:
        error.code = given["code"]
    for name, value in given["facts"].items():
        fact = tuple(value) if name == "allowed" else ProviderErrorKind(value) if name == "kind" else value
        setattr(error, name, fact)
    return error


# Values that are not JSON: metadata has ids and times.


def _tagged(value: Any) -> Any:
    match value:
        case UUID():
            return {"uuid": str(value)}
        case datetime():
            return {"time": value.isoformat()}
        case Mapping():
            return {"map": {str(name): _tagged(inner) for name, inner in value.items()}}
        case _:
            return {"value": value}


def _untagged(given: Mapping[str, Any]) -> Any:
    [(tag, value)] = given.items()
    match tag:
        case "uuid":
            return UUID(value)
        case "time":
            return datetime.fromisoformat(value)
        case "map":
            return {name: _untagged(inner) for name, inner in value.items()}
        case _:
            return value


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _uuid(value: str | None) -> UUID | None:
    return None if value is None else UUID(value)
