"""Rules of an agent in a child run: never wider than those of the run that started it."""

from collections.abc import Iterable
from dataclasses import replace

from toolcrib.core.agents import ApprovalPoint, NarrowedPermission, ToolPermission
from toolcrib.core.callers import Agent, Narrowing
from toolcrib.core.ids import SessionId
from toolcrib.core.paused_calls import Grant
from toolcrib.policy.permissions import (
    ALLOWED_BY_DEFAULT,
    ToolMetadata,
    host_covers,
    is_offered,
    is_read_only,
    permission_for,
)


def narrowed_agent(
    agent: Agent, parent: Agent, tools: Iterable[ToolMetadata], narrowing: Narrowing, session_id: SessionId
) -> Agent:
    """Return the agent with what it may do itself, its parent may do, and the call that started the run leaves.

    Args:
        parent: The agent of the parent run as it calls tools: with its session's trust, and narrowed itself.
        tools: The tools that are considered; others are denied.
        session_id: The session of the child run. What people grant in it applies to it.
    """
    own, above = agent.rules, parent.rules
    only = narrowing.tools
    permitted: dict[str, ToolPermission] = {
        tool.name: _both(permission_for(own, tool.name), permission_for(above, tool.name))
        for tool in tools
        if is_offered(own, tool) and is_offered(above, tool) and (only is None or tool.name in only)
    }
    # Also because an agent without any permission would be allowed to read.
    for name in ALLOWED_BY_DEFAULT:
        both = [permission_for(rules, name) for rules in (own, above)]
        permitted[name] = ToolPermission(allowed=all(one is None or one.allowed for one in both))
    trust = own.trust.capped(above.trust).capped(narrowing.trust)
    rules = own.model_copy(
        update={
            "trust": trust,
            "max_trust": trust,
            "toolsets": tuple(name for name in own.toolsets if name in above.toolsets),
            "tool_permissions": permitted,
            "max_read_bytes": min(own.max_read_bytes, above.max_read_bytes),
            "max_write_bytes": min(own.max_write_bytes, above.max_write_bytes),
            "unprotected_paths": tuple(path for path in own.unprotected_paths if path in above.unprotected_paths),
            "max_sandbox_violations": min(own.max_sandbox_violations, above.max_sandbox_violations),
        }
    )
    return replace(
        agent,
        rules=rules,
        grants=_grants(agent, parent, session_id),
        max_trust=trust,
        is_read_only=any(one.is_read_only or is_read_only(one.rules) for one in (agent, parent)),
    )


def _both(own: ToolPermission | None, above: ToolPermission | None) -> ToolPermission:
    """Return the permission that both give. Without an entry, an agent may use what it may use everywhere."""
    given = [one for one in (own, above) if one is not None]
    first, *others = dict.fromkeys(paths for one in given for paths in one.path_lists) or [None]
    timeouts = [one.timeout for one in given if one.timeout is not None]
    return NarrowedPermission(
        allowed=True,
        paths=first,
        parent_paths=tuple(paths for paths in others if paths is not None),
        timeout=min(timeouts, default=None),
        approve=(
            ApprovalPoint.EFFECT
            if given and all(one.approve is ApprovalPoint.EFFECT for one in given)
            else ApprovalPoint.COMMAND
        ),
        hosts=_common_hosts(own.hosts, above.hosts) if own is not None and above is not None else (),
    )


def _common_hosts(own: tuple[str, ...], above: tuple[str, ...]) -> tuple[str, ...]:
    kept = [host for host in own if any(host_covers(one, host) for one in above)]
    kept += [host for host in above if any(host_covers(one, host) for one in own)]
    return tuple(dict.fromkeys(kept))


def _grants(agent: Agent, parent: Agent, session_id: SessionId) -> tuple[Grant, ...]:
    """Return what people granted in the child's own session, and what they granted both agents for good."""
    shared = [grant.rule for grant in parent.grants if grant.session_id is None]
    return tuple(
        grant
        for grant in agent.grants
        if grant.session_id == session_id or (grant.session_id is None and grant.rule in shared)
    )
