"""Explains what the gate would do with a call, from the same values with which it executes one."""

from dataclasses import replace

from toolcrib.core.errors import Forbidden
from toolcrib.gate.call_stages import AuthorizedCall
from toolcrib.policy.authorization import MEMBERSHIP, AskedAbout, AuthorizationAction, Explanation, explain
from toolcrib.workspace.tree import WorkspaceTree


async def explain_call(authorized: AuthorizedCall, tree: WorkspaceTree) -> Explanation:
    """Return the gate's decision, with what only the gate knows: the caller's role, and what a person is asked about.

    Args:
        tree: The workspace as the call would see it.
    """
    found = explain(authorized.caller, authorized.tool, authorized.effects)
    if found.action is AuthorizationAction.DENY:
        return found
    try:
        await tree.check_membership()
    except Forbidden as error:
        checked = (*found.rules_checked, f"{MEMBERSHIP}: {AuthorizationAction.DENY}")
        return replace(
            found, action=AuthorizationAction.DENY, rule=MEMBERSHIP, reason=error.message, rules_checked=checked
        )
    if found.action is not AuthorizationAction.ASK:
        return found
    if not (authorized.can_preview and authorized.may_reveal):
        return replace(found, asks_about=AskedAbout.CALL)
    runs_first = authorized.effects.command is not None
    first = "The command runs first, in the sandbox" if runs_first else "Its changes are computed first"
    reason = f"{found.reason} {first}: the approval shows the effect, and nobody is asked if there is none."
    return replace(found, reason=reason, asks_about=AskedAbout.EFFECT)
