"""``toolcrib approve``: lists paused calls, and approves or rejects them."""

import sys
from typing import Annotated

import typer
from rich.text import Text

from toolcrib.cli.approval_inbox import (
    InboxSelection,
    PauseArgument,
    PendingCall,
    found_by,
    pending_calls,
    print_pending,
    record,
)
from toolcrib.cli.command_options import JsonOption, YesOption, with_options
from toolcrib.cli.decision_prompts import edited_rule
from toolcrib.cli.terminal_text import (
    Row,
    age,
    one_line,
    print_json,
    print_lines,
    rule_text,
    short_id,
    shown_approval,
    what_is_asked,
    what_would_change,
)
from toolcrib.client import ApprovalOut, QuestionPauseOut
from toolcrib.core.errors import Misconfigured
from toolcrib.core.paused_calls import GrantScope


@with_options(InboxSelection)
def approve(
    selection: InboxSelection,
    pause_id: PauseArgument = None,
    reject: Annotated[bool, typer.Option("--reject", help="Reject it.")] = False,
    reason: Annotated[str | None, typer.Option(help="Reason for a rejection (the agent sees it).")] = None,
    scope: Annotated[GrantScope, typer.Option(help="How long an approval applies.")] = GrantScope.ONCE,
    rule: Annotated[
        list[str] | None,
        typer.Option(
            help="What to approve with a wider scope: a command such as 'git diff *' or a path such as 'src/**' "
            "(may be repeated), or the rule as JSON. By default the suggested rule."
        ),
    ] = None,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """List pending approvals and questions, or approve or reject one.

    Uses this directory; with --server, TOOLCRIB_TOKEN (an access token or API key); with --database, --as.

    Example: toolcrib approve 3f9a2b1c --scope session --rule 'git diff *'
    """
    with selection.open() as inbox:
        pending = pending_calls(inbox, selection.workspace)
        if pause_id is None:
            headings = ("id", "age", "agent", "tool", "changes")
            print_pending(pending, headings, map(_row, pending), as_json=as_json, empty="No pending approvals.")
            return
        workspace, short = found_by(pending, pause_id, "approve")
        approval = inbox.paused_call(workspace.id, short.id)
        if isinstance(approval, QuestionPauseOut):
            raise Misconfigured(f"{pause_id} is a question. Answer it with: toolcrib answer {pause_id}")
        if rule and (reject or scope is GrantScope.ONCE):
            raise Misconfigured("A rule needs --scope session or --scope always.")
        saved = edited_rule(approval.suggested_rule, rule) if rule else approval.suggested_rule
        if not as_json:
            print_lines(shown_approval(inbox.whole_approval(workspace.id, approval), workspace.name))
            if not reject and scope is not GrantScope.ONCE:
                how_long = "in this session" if scope is GrantScope.SESSION else "until revoked"
                print_lines([Text(f"This also approves, {how_long}, without asking: {rule_text(saved)}\n")], wrap=True)
        if not yes:
            _ask("Reject?" if reject else "Approve?")
        decided = inbox.decide(workspace.id, approval, approved=not reject, scope=scope, reason=reason, rule=saved)
        if as_json:
            print_json(record(workspace, decided))
        else:
            typer.echo("Rejected." if reject else "Approved. The server runs it now.")


def _row(pending: PendingCall) -> Row:
    _, one = pending
    return (
        short_id(one.id),
        Text(age(one.created_at), no_wrap=True),
        one_line(one.agent_name or "", 40),
        one_line(one.tool, 40),
        what_would_change(one) if isinstance(one, ApprovalOut) else what_is_asked(one),
    )


def _ask(question: str) -> None:
    """Asks for confirmation, and exits without it. A program without a terminal must pass ``--yes``."""
    if not sys.stdin.isatty() and not sys.stdin.readable():
        raise Misconfigured("There is no terminal to confirm at. Add --yes.")
    try:
        if not typer.confirm(question):
            typer.echo("Cancelled. The approval is still pending.")
            raise typer.Exit(1)
    except typer.Abort:
        raise Misconfigured(
            "Input ended without a confirmation. The approval is still pending. Add --yes to skip the confirmation."
        ) from None
